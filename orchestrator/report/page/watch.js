// Follows a store: a file loads itself anew, for a browser lets no file look at another. Never while somebody is at it.

const REST_MS = 3000;
let touched = -REST_MS;
for (const name of ["pointerdown", "pointermove", "keydown", "wheel", "touchmove"]) addEventListener(name, () => { touched = performance.now(); }, { passive: true, capture: true });

const isRead = () => dialog.open || document.hidden || performance.now() - touched < REST_MS;

const loadAnew = () => {
  if (isRead()) setTimeout(loadAnew, 500);
  else location.reload();
};

const every = () => 1000 * Number(document.documentElement.dataset.refresh);

let followStore = () => {
  if (every()) setTimeout(loadAnew, every());
};
