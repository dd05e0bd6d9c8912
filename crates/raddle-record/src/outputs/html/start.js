
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
  const drop = () => {
    const event = new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true });
    document.querySelector("canvas").dispatchEvent(event);
  };
  // The viewer takes files from its second frame on.
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(drop)));
  // It shows its own name in the title.
  new MutationObserver(() => {
    if (document.title !== title) document.title = title;
  }).observe(document.querySelector("title"), { childList: true });
});
