"""A headless browser that visits the playground, driven by Selenium with the mouse and the keyboard."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVER = "chromedriver"
PLACE = """
const model = Bokeh.documents[0].get_model_by_name(arguments[0])
const view = Bokeh.index.find_one(model)
view.el.scrollIntoView({block: "center"})
const box = view.el.getBoundingClientRect()
return [box.x, box.y, box.width, box.height]
"""
PIXEL = """
const view = Bokeh.index.find_one(Bokeh.documents[0].get_model_by_name(arguments[0]))
view.el.scrollIntoView({block: "center"})
const box = view.el.getBoundingClientRect()
return [box.x + view.frame.x_scale.compute(arguments[1]), box.y + view.frame.y_scale.compute(arguments[2])]
"""
READ = "return Bokeh.documents[0].get_model_by_name(arguments[0])[arguments[1]]"
SET = "Bokeh.documents[0].get_model_by_name(arguments[0]).setv(arguments[1])"
SOURCE = """
const source = Bokeh.documents[0].get_model_by_name(arguments[0]).renderers.at(arguments[1]).data_source
return Object.fromEntries(Object.entries(source.data).map(([name, column]) => [name, Array.from(column)]))
"""
# Records when a figure with new data has been drawn on the screen, and when the mouse button is released
WATCH = """
const source = Bokeh.documents[0].get_model_by_name(arguments[0]).renderers.at(arguments[1]).data_source
window.redrawn = []
source.properties.data.change.connect(() =>
  requestAnimationFrame(() => setTimeout(() => window.redrawn.push(performance.now()))))
window.released = []
window.addEventListener("pointerup", () => window.released.push(performance.now()), true)
"""


def why_unavailable() -> str:
    """Return why no browser can be driven here; empty if one can."""
    if not any(shutil.which(name) for name in BROWSERS):
        return f"no browser is installed (none of {', '.join(BROWSERS)})"
    if shutil.which(DRIVER) is None:
        return f"{DRIVER} is not installed"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    return ""


class Browser:
    """A new browser with an empty profile, which can reach no host but this machine.

    Parameters
    ----------
    width, height
        Size of the page, in pixels.
    is_dark
        Whether the system prefers dark pages.
    """

    def __init__(self, width: int = 1400, height: int = 1000, is_dark: bool = False):
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
        for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
            options.add_argument(f"--{argument}")
        options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which(DRIVER)))
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def open(self, address: str) -> None:
        """Open the page at `address`, and wait until it has been drawn."""
        self.driver.get(address)
        self.until(lambda: self.script("return Bokeh?.documents?.[0]?.is_idle === true"))

    def script(self, code: str, *arguments: object) -> Any:
        """Return what a program in the page returns; None if it raises an error, as before the page is loaded."""
        from selenium.common.exceptions import JavascriptException

        try:
            return self.driver.execute_script(code, *arguments)
        except JavascriptException:
            return None

    def read(self, name: str, attribute: str = "text") -> Any:
        """Return an attribute of the model called `name`."""
        return self.script(READ, name, attribute)

    def change(self, name: str, **values: object) -> None:
        """Set attributes of the model called `name`, as its widget does."""
        self.driver.execute_script(SET, name, values)

    def source(self, name: str, renderer: int = -1) -> dict[str, list]:
        """Return the columns of a renderer of the figure called `name`."""
        return self.script(SOURCE, name, renderer)

    def until(self, condition: Callable[[], object], seconds: float = 90) -> None:
        """Wait until `condition()` holds."""
        ends = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > ends:
                raise TimeoutError(f"the page says {self.read('status')!r}")
            time.sleep(0.02)

    def until_said(self, word: str, seconds: float = 90) -> None:
        """Wait until the page's status contains `word`."""
        self.until(lambda: word in (self.read("status") or ""), seconds)

    def pixel(self, figure: str, x: float, y: float) -> tuple[int, int]:
        """Return the position on the screen of the point (x, y) of a figure, in pixels."""
        across, down = self.driver.execute_script(PIXEL, figure, x, y)
        return round(across), round(down)

    def click(self, name: str) -> None:
        """Click at the centre of the model called `name`."""
        x, y, width, height = self.driver.execute_script(PLACE, name)
        self.mouse([(round(x + width / 2), round(y + height / 2))])

    def mouse(self, path: list[tuple[int, int]]) -> None:
        """Press the mouse at the first place of `path`, move along it, and release."""
        from selenium.webdriver.common.actions.action_builder import ActionBuilder
        from selenium.webdriver.common.actions.pointer_input import PointerInput

        actions = ActionBuilder(self.driver, mouse=PointerInput("mouse", "mouse"), duration=20)
        pointer = actions.pointer_action
        pointer.move_to_location(*path[0])
        pointer.pointer_down()
        for place in path[1:]:
            pointer.move_to_location(*place)
        pointer.pointer_up()
        actions.perform()

    def click_at(self, figure: str, x: float, y: float) -> None:
        """Click at the point (x, y) of a figure."""
        self.mouse([self.pixel(figure, x, y)])

    def drag(self, figure: str, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag from one point of a figure to another."""
        (x0, y0), (x1, y1) = self.pixel(figure, *start), self.pixel(figure, *end)
        self.mouse([(x0, y0), ((x0 + x1) // 2, (y0 + y1) // 2), (x1, y1)])

    def press(self, key: str) -> None:
        """Press a key."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(key).perform()

    def download_to(self, folder: Path) -> None:
        """Let the page write files into `folder`."""
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})

    def errors(self) -> list[str]:
        """Return the warnings and errors of the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def hosts(self) -> set[str]:
        """Return the hosts from which the page has loaded anything."""
        return set(self.script("return performance.getEntriesByType('resource').map((e) => new URL(e.name).host)"))

    def picture(self, path: Path, is_whole: bool = False) -> None:
        """Write what is on the screen, or the whole page, as PNG."""
        if is_whole:
            width, height = self.script("return [innerWidth, document.body.scrollHeight]")
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            time.sleep(0.7)
        self.driver.save_screenshot(str(path))
