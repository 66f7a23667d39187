"""The page in a real browser: from disk, without a network, by mouse and keyboard, narrow and dark."""

from __future__ import annotations

import pytest

from rnn_scaling.commands import report
from rnn_scaling.records import record
from tests.support.chromium import CHROMIUM, FLAGS, playwright
from tests.support.records import changed
from tests.support.scaling_runs import attributed, run, timed, write_folder


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A report of weak, strong and text runs, with failures and a file that is no record."""
    folder = tmp_path_factory.mktemp("runs")
    long = {"all_reduce_spec": "pscpu:32k:xring#" + "2" * 60, "variable_update": "replicated"}
    runs = [*attributed(), run(4, 1.0, "failed", variable_update="replicated"), timed(2, 140, **long)]
    runs += [timed(n, 90 * n, k, global_batch_size=64) for n in (1, 2) for k in range(3)]
    for number, result in enumerate(runs):
        record.write(result, folder / f"{number}.json")
    (folder / "cut.json").write_text("{")
    assert report.main([str(folder)]) == 0
    return folder / "report.html"


@pytest.fixture
def open_page(browser, path):
    """Opens the page in a context of its own; at the end no request and no complaint may have been seen."""
    contexts, seen = [], []

    def opened(width=1280, height=800, **context):
        made = browser.new_context(viewport={"width": width, "height": height}, offline=True, **context)
        contexts.append(made)
        page = made.new_page()
        page.on("console", lambda message: seen.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: seen.append(f"error: {error}"))
        page.on("request", lambda request: request.url.startswith("file:") or seen.append(f"request: {request.url}"))
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert seen == []


def test_it_opens_from_disk_and_answers_first(open_page):
    page = open_page()
    assert "on 2 devices" in page.locator("#answer").inner_text()
    assert page.evaluate("document.documentElement.scrollHeight") < 4600, "details are folded"


def _below(page, selector):
    box = page.locator(selector).first.bounding_box()
    return box["y"] + box["height"]


def test_the_first_screen_has_the_answer_every_series_and_the_picture(open_page):
    page = open_page(1366, 768)
    assert max(_below(page, "#answer"), _below(page, ".first figure"), _below(page, ".overview")) < 768
    assert page.locator(".overview tbody tr:not(.group)").count() == page.locator("[id^=series-]").count() == 4


def test_a_phone_shows_the_speedup_at_once_and_keeps_the_first_column(open_page):
    page = open_page(390, 844)
    cell = page.locator(".overview td").first
    box = cell.bounding_box()
    assert cell.inner_text().replace("\u00a0", " ") == "1.80 ± 0.02"
    assert box["x"] + box["width"] <= 390 and box["y"] + box["height"] <= 844
    assert page.evaluate("(e => (e.scrollLeft = 150, e.scrollLeft))(document.querySelector('.first .scroll'))") > 50
    name = page.locator(".overview th[scope=row]").first.bounding_box()
    assert name["x"] >= 0 and name["x"] + name["width"] < 390


def test_names_of_links_buttons_tables_and_regions_tell_apart(open_page):
    page = open_page()
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    for selector in ("a", "button", "summary", "caption", "[role=region]", "[role=img] > title", "ul[aria-label]"):
        names = page.evaluate(
            "s => [...document.querySelectorAll(s)].map(e => e.ariaLabel || e.textContent.trim())", selector
        )
        twice = {name for name in names if names.count(name) > 1}
        assert names and not twice, (selector, twice)


def test_a_link_to_a_series_unfolds_it(open_page):
    page = open_page()
    link = page.locator(".overview a").nth(1)
    target = page.locator(link.get_attribute("href"))
    assert not target.is_visible()
    link.click()
    target.wait_for(state="visible")
    assert target.locator("caption").inner_text().startswith(link.inner_text())


def test_nothing_is_wider_than_the_screen(open_page):
    page = open_page(320)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    outside = """() => [...document.querySelectorAll('p, li, h1, h2, h3, dd, code, button, summary, svg')]
        .filter(e => e.checkVisibility() && !e.closest('.visually-hidden, .scroll'))
        .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
    for width in (320, 360, 768, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function("width => innerWidth === width", arg=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(outside) == [], width


def test_dark_and_light_have_enough_contrast_pictures_included(open_page):
    contrast = """() => {
        const probe = document.body.appendChild(document.createElement('canvas')).getContext('2d',
            {willReadFrequently: true});
        const light = colour => {
            probe.fillStyle = colour; probe.fillRect(0, 0, 1, 1);
            const part = v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
            const [r, g, b] = [...probe.getImageData(0, 0, 1, 1).data].map(part);
            return .2126 * r + .7152 * g + .0722 * b;
        };
        const paper = light(getComputedStyle(document.body).backgroundColor);
        const against = colour => { const l = light(colour);
            return (Math.max(l, paper) + .05) / (Math.min(l, paper) + .05); };
        const text = ['p', 'h1', '.note', 'th', 'dt', 'summary', 'nav a', 'svg text']
            .map(s => document.querySelector(s))
            .map(e => getComputedStyle(e)[e.closest('svg') ? 'fill' : 'color']);
        const lines = ['s0', 's1', 's2', 's3', 's4', 's5', 'loss', 'gain', 'rest']
            .map(name => getComputedStyle(document.documentElement).getPropertyValue('--' + name));
        return [paper, Math.min(...text.map(against)), Math.min(...lines.map(against))];
    }"""
    page, papers = open_page(), []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        paper, text, lines = page.evaluate(contrast)
        assert text >= 4.5 and lines >= 3, (scheme, text, lines)
        papers.append(paper)
    assert papers[0] > 0.9 and papers[1] < 0.05


def test_pictures_take_the_colours_of_the_theme(open_page):
    page, colours = open_page(), set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colours.add(page.evaluate("getComputedStyle([...document.querySelectorAll('svg.plot text')][0]).fill"))
    assert len(colours) == 2


def test_headings_go_down_one_step_at_a_time(open_page):
    levels = open_page().evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(e => Number(e.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:]))


def test_every_picture_and_table_has_a_name(open_page):
    page = open_page()
    unnamed = """() => [...document.querySelectorAll('svg, img')]
        .filter(e => e.getAttribute('aria-hidden') !== 'true')
        .filter(e => !(e.getAttribute('aria-labelledby') || '').split(' ')
            .map(id => document.getElementById(id)?.textContent).every(text => text && text.length > 5)).length"""
    assert page.locator("svg.plot").count() > 8 and page.evaluate(unnamed) == 0
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator("header, nav, main, footer").count() == 4


def test_by_keyboard_one_skips_and_every_stop_is_visible(open_page):
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    stops = []
    while page.keyboard.press("Tab") or page.evaluate("document.activeElement.tagName") != "BODY":
        stops.append(page.evaluate("document.activeElement.tagName"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert set(stops) == {"A", "SUMMARY", "BUTTON"} and len(stops) >= 20


def test_tables_are_stops_of_the_keyboard_only_where_they_scroll(open_page):
    for width, stops in ((1280, 0), (320, 1)):
        page = open_page(width)
        assert min(page.locator(".scroll[tabindex='0']").count(), 1) == stops
    assert page.locator(".scroll[tabindex='0']").first.get_attribute("aria-label")


def test_every_link_of_the_navigation_leads_to_its_section(open_page):
    page = open_page(reduced_motion="reduce")  # it jumps there at once
    links = page.locator("nav a")
    assert links.count() >= 7
    for i in range(links.count()):
        target = links.nth(i).get_attribute("href")
        links.nth(i).click()
        page.wait_for_function("id => document.querySelector(id).getBoundingClientRect().top < innerHeight", arg=target)
        assert page.evaluate("location.hash") == target
        assert page.locator(target).is_visible()


def test_details_open_and_commands_are_copied(open_page):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    summary = page.locator("details:has(code):not([open]) > summary").first
    summary.focus()
    page.keyboard.press("Enter")
    button = page.locator("details[open] button.copy").first
    button.click()
    page.wait_for_function("document.getElementById('status').textContent === 'Copied.'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("./run.sh sweep --num_devices=1") and "\n" not in copied
    assert copied == page.locator("details[open] code").first.text_content()


def test_without_the_clipboard_the_command_is_selected(open_page):
    page = open_page()
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    page.locator("button.copy:visible").first.click()
    page.wait_for_function("document.getElementById('status').textContent === 'Selected.'")
    assert page.evaluate("getSelection().toString()").startswith("./run.sh")


def test_without_scripts_all_is_there_and_no_button_is_dead(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator("#answer").is_visible() and page.locator("button:visible").count() == 0
    page.locator("details:has(code) > summary").first.click()
    assert page.locator("details[open] code").first.is_visible()


def test_print_is_on_white_with_the_tables_whole(open_page):
    page = open_page(794, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("nav").is_hidden() and page.locator("button:visible").count() == 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert (
        page.locator("details:not([open], .screen)").count() == 0
        and page.locator("details.screen:visible").count() == 0
    )
    tables = "[...document.querySelectorAll('table')].filter(e => e.getBoundingClientRect().right > innerWidth)"
    assert page.evaluate(f"{tables}.map(e => e.caption.textContent)") == []
    split = """() => {
        const split = [], walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
        for (let node; node = walker.nextNode();) {
            const inside = node.parentElement;
            if (!inside.checkVisibility() || inside.closest('svg, code, .visually-hidden')) continue;
            for (const word of node.textContent.matchAll(/[^\\s]{2,24}/g)) {
                const range = document.createRange();
                range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
                if (new Set([...range.getClientRects()].map(r => Math.round(r.top))).size > 1) split.push(word[0]);
            }
        }
        return split;
    }"""
    assert [word for word in page.evaluate(split) if "2222" not in word] == [], "no word is split"
    assert page.evaluate(
        "[...document.querySelectorAll('table')].every(e => getComputedStyle(e).breakInside === 'avoid')"
    )
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    pages = page.pdf(format="A4").count(b"/Type /Page\n")
    assert 0 < pages <= 4


def test_a_certificate_is_seen_beside_the_picture(browser, tmp_path):
    right = {"verdict": "equal within 1e-05", "holds": True, "sentence": "As it should be."}
    write_folder(tmp_path, [changed(run, certificate=right) for run in attributed()])
    assert report.main([str(tmp_path)]) == 0
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto((tmp_path / "report.html").as_uri())
    hidden = "table => table.parentElement.scrollWidth - table.parentElement.clientWidth"
    assert page.locator("table.overview").evaluate(hidden) <= 0
    page.close()
