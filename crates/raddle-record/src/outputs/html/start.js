
"use strict";
// Sums have no order of time: the widest first.
if (!location.hash) location.replace("#view=left-heavy");
// Gives the profile to the viewer, when it is there: as a file that is dropped on it.
window.addEventListener("load", () => {
  const text = document.getElementById("profile").textContent;
  const title = document.title;
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const files = new DataTransfer();
  files.items.add(new File([bytes], "profile.speedscope.json"));
  // The viewer takes files from when it has given its canvas a size.
  const drop = () => {
    const canvas = document.querySelector("canvas");
    if (!canvas || canvas.width === 1) return requestAnimationFrame(drop);
    const event = new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true });
    canvas.dispatchEvent(event);
  };
  drop();
  // It shows its own name in the title.
  new MutationObserver(() => {
    if (document.title !== title) document.title = title;
  }).observe(document.querySelector("title"), { childList: true });
});
