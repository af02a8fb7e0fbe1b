// Colours: a diverging scale for advantages, a tint for values. Their ends come
// from the style sheet, so light and dark have their own.

const dark = matchMedia("(prefers-color-scheme: dark)");

function ink(name) {
  return getComputedStyle(document.documentElement)
    .getPropertyValue(`--${name}`).trim();
}

function mixed(from, to, share) {
  const channel = (hex, i) => parseInt(hex.slice(1 + 2 * i, 3 + 2 * i), 16);
  const parts = [0, 1, 2].map((i) => Math.round(
    channel(from, i) + share * (channel(to, i) - channel(from, i))));
  return `rgb(${parts.join(", ")})`;
}

/** The palette of the present colour scheme. */
function readPalette() {
  const names = ["text", "muted", "line", "surface", "node", "value",
    "negative", "neutral", "positive", "select", "success", "failure",
    "truncated"];
  return Object.fromEntries(names.map((name) => [name, ink(name)]));
}

let palette = readPalette();

/**
 * Colour of an advantage; `reach` is the largest that the scale shows. A square
 * root keeps small advantages apart where one step stands out.
 */
function advantageColour(x, reach) {
  const share = reach > 0 ? Math.sqrt(Math.min(Math.abs(x) / reach, 1)) : 0;
  return mixed(
    palette.neutral, x < 0 ? palette.negative : palette.positive, share);
}

/** Fill of a state: the higher its value among the group's, the stronger. */
function valueColour(v, [low, high]) {
  const share = high > low ? (v - low) / (high - low) : 0;
  return mixed(palette.node, palette.value, share);
}

/** Largest advantage of a view, over all depths: one scale for the slider. */
function reachOf(view) {
  return Math.max(0, ...view.credit.map(
    (level) => level.reduce((most, x) => Math.max(most, Math.abs(x)), 0)));
}

/** Least and largest V of a view, over all depths. */
function spanOf(view) {
  const values = view.v.flat();
  return [
    values.reduce((a, b) => Math.min(a, b), 0),
    values.reduce((a, b) => Math.max(a, b), 0),
  ];
}

/** Draws the legend of a pane, in numbers; a quarter is half of the way. */
function drawLegend(element, reach) {
  const ticks = reach > 0 ? [-1, -0.25, 0, 0.25, 1] : [0];
  element.querySelector(".ticks").replaceChildren(...ticks.map(
    (share) => make("li", signed(Number((share * reach).toPrecision(3))))));
}
