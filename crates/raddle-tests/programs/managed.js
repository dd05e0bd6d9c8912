// Two workers and the main thread that wait below a known function. Says "ready".
const { Worker, isMainThread } = require('worker_threads');

function waitForEver() {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}

if (isMainThread) {
  for (let i = 0; i < 2; i++) new Worker(__filename);
  setTimeout(() => {
    console.log('ready');
    waitForEver();
  }, 500);
} else {
  waitForEver();
}
