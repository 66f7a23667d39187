"""The page in a real browser: from disk, without a network, by mouse and keyboard, narrow and dark."""

import pytest

from rnn_scaling.commands import report
from rnn_scaling.records import record
from tests.browser.conftest import listen
from tests.support.scaling_runs import (
    make_attributed_runs,
    make_timed_run,
    run,
    skip_pictures,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Write a report of weak and strong scaling, with failures and a damaged record."""
    folder = tmp_path_factory.mktemp("runs")
    long = {
        "all_reduce_spec": "pscpu:32k:xring#" + "2" * 60,
        "variable_update": "replicated",
    }
    runs = [
        *make_attributed_runs(),
        run(4, 1.0, "failed", variable_update="replicated"),
        make_timed_run(2, 140, **long),
    ]
    runs += [
        make_timed_run(n, 90 * n, k, global_batch_size=64)
        for n in (1, 2)
        for k in range(3)
    ]
    for number, result in enumerate(runs):
        record.write(result, folder / f"{number}.json")
    (folder / "cut.json").write_text("{")
    with skip_pictures():
        assert report.main([str(folder)]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def tab(browser):
    """Open a page for tests without special options; yield it and the events seen in it."""
    context = browser.new_context(
        offline=True, permissions=["clipboard-read", "clipboard-write"]
    )
    page, seen = context.new_page(), []
    listen(page, seen)
    yield page, seen
    context.close()


@pytest.fixture
def open_page(path, tab, visit):
    """Return a function that reloads the page; fail if it caused requests or messages.

    Options of the function other than the size create a new browser context.
    """
    page, seen = tab

    def opened(width=1280, height=800, **context):
        opened_page = visit("about:blank", **context) if context else page
        scheme = context.get("color_scheme", "light")
        opened_page.emulate_media(media="screen", color_scheme=scheme)
        opened_page.set_viewport_size({"width": width, "height": height})
        opened_page.goto("about:blank")
        opened_page.goto(path.as_uri())
        return opened_page

    yield opened
    assert seen == []


@pytest.fixture(scope="module")
def still(browser, path):
    """Open a page that is shared by tests that do not change it."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    yield page
    context.close()


def wait_until(page, expression, argument=None):
    """Wait until an expression is true.

    wait_for_function would evaluate text in the page, which the page's policy forbids.
    """
    looks = 0
    while not page.evaluate(expression, argument):
        looks += 1
        assert looks < 600, f"never true: {expression}"
        page.wait_for_timeout(50)


def find_lower_edge(page, selector):
    box = page.locator(selector).first.bounding_box()
    return box["y"] + box["height"]


def test_the_first_screen_has_the_answer_every_series_and_the_picture(still):
    places = ("#answer", ".picture svg", ".overview")
    assert max(find_lower_edge(still, place) for place in places) < 800
    # Details are folded.
    assert still.evaluate("document.documentElement.scrollHeight") <= 2500
    lines = still.locator(".overview tbody tr:not(.group)").count()
    assert lines == still.locator("[id^=series-]").count() == 4


def test_a_phone_shows_every_column_without_scrolling_sideways(open_page):
    page = open_page(390, 844)
    cells = page.locator(".overview tbody tr:not(.group)").first.locator("td:visible")
    box = cells.first.bounding_box()
    assert cells.first.inner_text().replace("\u00a0", " ").endswith("1.80 ± 0.02")
    assert box["y"] + box["height"] <= 844
    assert all(
        each["x"] >= 0 and each["x"] + each["width"] <= 390
        for each in [c.bounding_box() for c in cells.all()]
    )
    scroller = page.locator(".first .scroll").first
    assert scroller.evaluate("e => e.scrollWidth - e.clientWidth") <= 0


def test_names_of_links_buttons_tables_and_regions_tell_apart(open_page):
    page = open_page()
    page.evaluate(
        "document.querySelectorAll('details').forEach(each => each.open = true)"
    )
    for selector in (
        "a",
        "button",
        "summary",
        "caption",
        "[role=region]",
        "[role=img] > title",
    ):
        names = page.evaluate(
            "s => [...document.querySelectorAll(s)].map(e => e.ariaLabel || e.textContent.trim())",
            selector,
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
    assert (
        target.locator("caption").first.text_content().startswith(link.text_content())
    )


def test_nothing_is_wider_than_the_screen(open_page):
    page = open_page(320)
    page.evaluate(
        "document.querySelectorAll('details').forEach(each => each.open = true)"
    )
    outside = """() => [...document.querySelectorAll('p, li, h1, h2, h3, dd, code, button, summary, svg')]
        .filter(e => e.checkVisibility() && !e.closest('.visually-hidden, .scroll'))
        .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
    for width in (320, 360, 768, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        wait_until(page, "width => innerWidth === width", width)
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
        const text = ['p', 'h1', '.note', 'th', 'dt', 'summary', '.overview a', 'svg text']
            .map(s => document.querySelector(s))
            .map(e => getComputedStyle(e)[e.closest('svg') ? 'fill' : 'color']);
        const lines = ['s0', 's1', 's2', 's3', 's4', 's5', 'rest']
            .map(name => getComputedStyle(document.documentElement).getPropertyValue('--' + name));
        return [paper, Math.min(...text.map(against)), Math.min(...lines.map(against))];
    }"""
    page, papers, pictures = open_page(), [], set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        pictures.add(
            page.evaluate(
                "getComputedStyle(document.querySelector('svg.plot text')).fill"
            )
        )
        paper, text, lines = page.evaluate(contrast)
        assert text >= 4.5 and lines >= 3, (scheme, text, lines)
        papers.append(paper)
    assert papers[0] > 0.9 and papers[1] < 0.05 and len(pictures) == 2


def test_headings_go_down_one_step_at_a_time(still):
    levels = still.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map(e => Number(e.tagName[1]))"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:]))


def test_every_picture_and_table_has_a_name(still):
    page = still
    unnamed = """() => [...document.querySelectorAll('svg, img')]
        .filter(e => e.getAttribute('aria-hidden') !== 'true' && !((e.ariaLabel || '').length > 5))
        .filter(e => !(e.getAttribute('aria-labelledby') || '').split(' ')
            .map(id => document.getElementById(id)?.textContent).every(text => text && text.length > 5)).length"""
    assert page.locator("svg.plot").count() > 5 and page.evaluate(unnamed) == 0
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator("body > header, main, footer").count() == 3


def test_by_keyboard_one_skips_and_every_stop_is_visible(open_page):
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    stops = []
    while (
        page.keyboard.press("Tab")
        or page.evaluate("document.activeElement.tagName") != "BODY"
    ):
        stops.append(page.evaluate("document.activeElement.tagName"))
        assert (
            page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            != "none"
        )
    assert set(stops) == {"A", "a", "SUMMARY", "BUTTON", "SELECT", "INPUT"}
    assert len(stops) >= 20


def _state(page):
    """Return the visible content of the chart, the first table and the legend."""
    return page.evaluate("""() => ({
        points: document.querySelectorAll('.picture a').length,
        axis: document.querySelector('.picture svg').ariaLabel,
        rows: [...document.querySelectorAll('.overview tbody tr:not(.group)')].filter(e => !e.hidden)
            .map(e => e.cells[0].textContent),
        sort: [...document.querySelectorAll('.overview thead th')].map(e => e.ariaSort),
        off: [...document.querySelectorAll('.keys [aria-pressed=false]')].map(e => e.textContent),
    })""")


def test_the_address_keeps_what_is_chosen(open_page):
    page = open_page()
    page.get_by_role("combobox", name="Metric").select_option("words_per_second")
    before = _state(page)
    page.locator("details.series summary").click()
    page.locator(".keys button").first.click()
    after = _state(page)
    assert after["points"] < before["points"]
    assert after["off"]
    assert after["axis"].startswith("Words/s")
    page.locator(".overview .sort:visible").nth(1).click()
    page.get_by_role("button", name="Filter columns All series").click()
    page.get_by_label("Filter All series by Speedup").fill(">1.5")
    chosen = _state(page)
    assert "descending" in chosen["sort"]
    assert 0 < len(chosen["rows"]) < len(before["rows"])
    page.reload()
    assert _state(page) == chosen
    page.go_back()
    wait_until(page, "!document.querySelector('.keys [aria-pressed=false]')")
    assert _state(page)["axis"].startswith("Words/s"), "back undoes one step"


def test_a_column_sorts_by_number_up_and_down(open_page):
    page = open_page()
    page.locator("#runs").click()
    column = page.locator(".runs thead th", has_text="Words/s").locator(".sort")
    column.wait_for()
    index = (
        page.locator(".runs thead th .sort")
        .all_inner_texts()
        .index(column.inner_text())
    )

    def values():
        texts = page.locator(
            f".runs tbody tr > :nth-child({index + 1})"
        ).all_inner_texts()
        return [float(text.replace(",", "")) for text in texts if text != "n/a"], texts

    column.click()
    down, texts = values()
    assert down == sorted(down, reverse=True), "the first click sorts the fastest first"
    assert texts[-1] == "n/a", "unknown values come last"
    column.click()
    up, texts = values()
    assert up == sorted(down) != down and texts[-1] == "n/a"


def list_drawn_series(page):
    """Return the series that have a point in the chart."""
    names = page.evaluate(
        "[...document.querySelectorAll('[data-view=chart] .picture a')].map(e => e.ariaLabel)"
    )
    return {name.split(";")[0].rsplit(", ", 1)[0] for name in names}


def list_listed_series(page):
    return page.evaluate("""[...document.querySelectorAll('.overview tbody tr:not(.group)')]
        .filter(e => !e.hidden).map(e => e.cells[0].textContent)""")


def test_both_filters_act_on_the_table_and_on_the_chart(open_page):
    page = open_page()
    page.get_by_role("combobox", name="Metric").select_option("words_per_second")
    everything = list_listed_series(page)
    page.get_by_placeholder("Filter series").fill("replicated pscpu")
    named = list_listed_series(page)
    assert len(named) == 1 and list_drawn_series(page) == set(named)
    page.get_by_placeholder("Filter series").fill("")
    assert list_listed_series(page) == everything
    page.get_by_role("button", name="Filter columns All series").click()
    page.get_by_label("Filter All series by Efficiency").fill(">80")
    fast = list_listed_series(page)
    assert 0 < len(fast) < len(everything)
    assert list_drawn_series(page) <= set(fast)
    page.reload()
    assert list_listed_series(page) == fast and list_drawn_series(page) <= set(fast)


def test_the_metric_of_the_chart_is_marked_in_the_table_or_is_a_column_more(open_page):
    page = open_page()
    heads = "[...document.querySelectorAll('.overview thead tr:first-child th')].filter(e => !e.hidden)"
    texts = f"{heads}.map(e => e.textContent)"
    marked = f"{heads}.filter(e => e.matches('.chosen')).map(e => e.textContent)"
    before = page.evaluate(texts)
    [name] = page.evaluate(marked)
    assert name.startswith("Efficiency")
    page.get_by_role("combobox", name="Metric").select_option("speedup")
    [name] = page.evaluate(marked)
    assert name.startswith("Speedup") and page.evaluate(texts) == before
    page.get_by_role("combobox", name="Metric").select_option("step_p50_s")
    [name] = page.evaluate(marked)
    assert name.startswith("Step time") and "(ms)" in name
    assert len(page.evaluate(texts)) == len(before) + 1
    cells = page.locator(".overview td.extra").all_inner_texts()
    assert any("±" in cell for cell in cells)
    page.locator(".overview .extra .sort").click()
    values = [
        float(cell.split()[0].replace(",", ""))
        for cell in page.locator(
            ".overview tbody:first-of-type td.extra"
        ).all_inner_texts()
        if cell not in ("", "n/a")
    ]
    assert len(values) > 1 and values == sorted(values), "short steps come first"


def test_names_that_begin_alike_have_a_heading_until_the_table_is_sorted(open_page):
    page = open_page()
    heading = page.locator(".overview tr.group.shared:visible").first
    assert heading.inner_text() == "cudnn_lstm"
    name = page.locator(".overview tr.member span.shared").first
    assert name.bounding_box()["width"] <= 1
    drawn = page.locator("[data-view=chart] .picture svg text", has_text="cudnn_lstm")
    assert drawn.count() == 1
    page.locator(".overview .sort:visible").nth(1).click()
    assert name.bounding_box()["width"] > 20
    assert page.locator(".overview tr.group.shared:visible").count() == 0


def test_a_point_opens_its_runs_and_the_keyboard_closes_them(open_page):
    page = open_page()
    point = page.locator(".picture a").last
    name = point.get_attribute("aria-label")
    point.focus()
    assert name.split(";")[0] in page.locator(".tip").inner_text()
    assert "./run.sh" in page.locator(".tip").inner_text()
    page.keyboard.press("Enter")
    panel = page.locator("dialog[open]")
    assert panel.locator("h2").inner_text() == name.split(";")[0] and "run=" in page.url
    shown = panel.inner_text()
    for text in (
        "Repeat this run",
        "Step times",
        "p50",
        "p95",
        "longest",
        "Phases",
        "Configuration",
        "Environment",
    ):
        assert text in shown
    panel.locator(".others a").nth(1).click()
    assert page.locator(".others a[aria-current]").inner_text() in page.url
    panel.locator("button.copy").click()
    wait_until(page, "document.getElementById('status').textContent === 'Copied.'")
    assert page.evaluate("navigator.clipboard.readText()").startswith("./run.sh sweep")
    page.keyboard.press("Escape")
    panel.wait_for(state="detached")
    wait_until(page, "!location.hash.includes('run=')")
    page.go_back()
    page.locator("dialog[open]").wait_for()


def test_steps_zoom_by_numbers_and_by_dragging(open_page):
    page = open_page()
    page.locator(".picture a").last.click()
    page.get_by_label("First step shown").fill("12")
    page.get_by_label("Last step shown").fill("30")
    page.get_by_label("Last step shown").press("Enter")
    wait_until(page, "location.hash.includes('steps=12-30')")
    zoomed = page.locator("dialog svg[aria-label*='steps 12 to 30']")
    assert zoomed.count() == 1
    box = page.locator(".brush .overlay").bounding_box()
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 60, steps=4)
    page.mouse.up()
    wait_until(page, "!location.hash.includes('steps=12-30')")
    first = int(page.get_by_label("First step shown").input_value())
    assert 12 < first < int(page.get_by_label("Last step shown").input_value()) < 30
    page.get_by_role("button", name="All steps").click()
    assert page.get_by_label("First step shown").input_value() == "0"


def test_a_fingers_first_tap_says_what_a_point_is_and_the_second_opens_it(open_page):
    page = open_page(390, 844, has_touch=True, is_mobile=True)
    point = page.locator(".picture a").last
    point.tap()
    assert page.locator(".tip").is_visible()
    assert not page.locator("dialog[open]").count()
    point.tap()
    page.locator("dialog[open]").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_losses_of_all_series_are_bars_on_one_axis_that_lead_to_runs(open_page):
    page = open_page()
    page.locator("#loss").click()
    bars = page.locator("[data-view=bars] .picture a")
    bars.first.wait_for()
    assert bars.count() > 0 and page.locator("[data-view=bars] svg").count() == 1
    assert not page.locator("[data-view=bars] + .static").is_visible()
    bars.first.click()
    page.locator("dialog[open]").wait_for()


def test_without_the_clipboard_the_command_is_selected(open_page):
    page = open_page()
    page.evaluate(
        "() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }"
    )
    page.locator("#again").click()
    page.locator("button.copy:visible").first.click()
    wait_until(page, "document.getElementById('status').textContent === 'Selected.'")
    assert page.evaluate("getSelection().toString()").startswith("./run.sh")


def test_without_scripts_all_is_there_and_no_button_is_dead(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator(".first svg.plot").first.is_visible()
    assert not page.locator(".live").first.is_visible()
    assert (
        page.locator("#answer").is_visible()
        and page.locator("button:visible").count() == 0
    )
    page.locator("details:has(code) > summary").first.click()
    assert page.locator("details[open] code").first.is_visible()


def test_print_is_on_white_with_the_tables_whole(open_page):
    page = open_page(794)
    page.emulate_media(media="print", color_scheme="dark")
    assert (
        page.evaluate("getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    assert page.locator(".live:visible, .tools:visible").count() == 0
    assert page.locator("button.copy:visible").count() == 0
    assert page.locator(".first svg.plot").first.is_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open], .screen)").count() == 0
    assert page.locator("details.screen:visible").count() == 0
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
    assert [word for word in page.evaluate(split) if "2222" not in word] == [], (
        "no word is split"
    )
    breaks = page.locator("table").evaluate_all(
        "tables => tables.map(e => getComputedStyle(e).breakInside)"
    )
    assert set(breaks) == {"avoid"}
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.section[open]").count() == 0
    pages = page.pdf(format="A4").count(b"/Type /Page\n")
    assert 0 < pages <= 5
