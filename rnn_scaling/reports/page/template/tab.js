// TensorBoard's tab "Report": which runs, and their page below. Nothing is fetched from elsewhere.
const ALL = 'all runs';

export async function render() {
  document.documentElement.style.colorScheme = 'light dark';
  document.body.style.cssText = 'margin:0;height:100vh;display:flex;flex-direction:column;font:15px system-ui,sans-serif';
  const bar = document.body.appendChild(document.createElement('form'));
  bar.style.cssText = 'display:flex;gap:1em;align-items:center;padding:.5em 1em;border-bottom:1px solid #8886';
  const label = bar.appendChild(document.createElement('label'));
  label.textContent = 'Report of ';
  const select = label.appendChild(document.createElement('select'));
  select.style.font = 'inherit';
  const alone = bar.appendChild(document.createElement('a'));
  alone.textContent = 'open as a page of its own';
  alone.target = '_blank';
  const frame = document.body.appendChild(document.createElement('iframe'));
  frame.title = 'Report';
  frame.style.cssText = 'flex:1;border:0;width:100%';

  const show = () => {
    alone.href = frame.src = 'report' + (select.value ? '?run=' + encodeURIComponent(select.value) : '');
  };
  select.addEventListener('change', show);
  bar.addEventListener('submit', event => event.preventDefault());
  const answer = await fetch('runs');
  for (const name of ['', ...(await answer.json()).runs]) {
    select.add(new Option(name || ALL, name));
  }
  show();
}
