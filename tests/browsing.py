"""What tests ask of a page in a real browser."""

from typing import Any

from playwright.sync_api import Page

CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).slice(0, 3)
    .map((v) => Number(v) * (text.startsWith("color(") ? 255 : 1)); // mixed colours are from 0 to 1
  const light = (text) => {
    const [r, g, b] = rgb(text).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    const found = getComputedStyle(node).backgroundColor;
    return found.endsWith(", 0)") && node.parentElement ? behind(node.parentElement) : found;
  };
  const hasText = (node) => [...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim());
  const texts = [...document.querySelectorAll("body *")].filter((node) =>
    node.offsetParent && !node.closest(":disabled") && hasText(node));
  return texts.map((node) => {
    const [a, b] = [light(getComputedStyle(node).color), light(behind(node))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.outerHTML.slice(0, 80)];
  });
}"""


def hard_to_read(page: Page) -> list[Any]:
    """Texts whose contrast is below what WCAG asks for at level AA."""
    return [found for found in page.evaluate(CONTRAST) if found[0] < 4.5]
