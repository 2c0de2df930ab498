// In place of that, on a page of `taxmeter serve` alone: asks the server whether there is anything new.

const ask = async () => {
  const answer = await fetch("version", { cache: "no-store" });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.text();
};

const isServed = location.protocol === "http:" && ["127.0.0.1", "localhost"].includes(location.hostname);

const look = async () => {
  const live = document.querySelector(".live");
  try {
    const version = document.hidden ? null : await ask();
    live.textContent = live.dataset.text;
    if (version && version !== document.documentElement.dataset.version) return loadAnew();
  } catch (error) {
    const why = error instanceof TypeError ? "taxmeter serve does not answer" : error.message.trim();
    live.textContent = `${why}: this is the last page that it made.`;
  }
  setTimeout(look, every());
};

followStore = () => {
  const live = document.querySelector(".live");
  if (!live) return;
  live.dataset.text = live.textContent;
  if (isServed) setTimeout(look, every());
  else live.textContent = "A copy of a page of taxmeter serve: it does not change any more.";
};
