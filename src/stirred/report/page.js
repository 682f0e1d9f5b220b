const number = /^[±−-]?[\d,.]+%?$/, words = new Intl.Collator(undefined, {numeric: true});
const value = text => parseFloat(text.replace(/[±,%]/g, '').replace('−', '-'));
const compare = (a, b) => number.test(a) && number.test(b) ? value(a) - value(b) : words.compare(a, b);
for (const table of document.querySelectorAll('table')) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  if (rows.length > 1) heads.forEach((head, at) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const order = head.getAttribute('aria-sort') === 'ascending' ? 'descending' : 'ascending';
      heads.forEach(other => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', order);
      const text = row => row.cells[at].textContent.trim(), sign = order === 'ascending' ? 1 : -1;
      body.append(...[...rows].sort((a, b) => sign * compare(text(a), text(b))));
    });
  });
  if (rows.length < 10) continue;
  const label = document.createElement('label'), input = document.createElement('input');
  const found = document.createElement('span');
  label.className = 'filter';
  input.type = 'search';
  found.setAttribute('aria-live', 'polite');
  label.append('Filter rows', input, found);
  table.parentNode.before(label);
  input.addEventListener('input', () => {
    const wanted = input.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    found.textContent = wanted ? `${rows.filter(row => !row.hidden).length} of ${rows.length}` : '';
  });
}
addEventListener('beforeprint', () => document.querySelectorAll('details').forEach(each => each.open = true));
