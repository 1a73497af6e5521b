// The live picture of the cluster: nodes, the last hour, processes, what happens.
//
// The server sends everything once and then what has changed. What is known is kept in `known`;
// what the user wants to see is in the address (`#process=1:42&filter=user:anna`), so that every
// view is a link. `draw` makes the page from both, and touches only what is different. Texts are
// set as text, never as markup: they come from other people's processes.

const $ = (id) => document.getElementById(id);
const HOUR_S = 3600;
const MARKED_MS = 5000;
const LINES_MAX = 4096;
const LINES_SHOWN = 200;
const ROWS_STEP = 200;

const known = {
  nodes: new Map(), processes: new Map(), silent: [], leftOut: 0, lines: [], seen: 0,
  times: [], loads: new Map(), lost: null, isReadOnly: true, time: null,
};
const view = {
  marked: new Map(), rowsMax: ROWS_STEP, dragged: null, toldAt: 0, connection: 'connecting',
  isHistoryNew: true, isLogNew: true, why: null, whyOf: null,
};

// --- the address -------------------------------------------------------------------------------

function wanted() {
  const found = { process: null, node: null, filter: '', sort: 'cpu', tree: false };
  for (const part of location.hash.slice(1).split('&')) {
    const at = part.indexOf('=');
    const [name, raw] = at < 0 ? [part, ''] : [part.slice(0, at), part.slice(at + 1)];
    let value = raw;
    try { value = decodeURIComponent(raw); } catch { /* it stays as it was typed */ }
    if (name === 'tree') found.tree = true;
    else if (name === 'process' && /^\d+:\d+$/.test(value)) found.process = value;
    else if (name === 'node' && /^\d+$/.test(value)) found.node = Number(value);
    else if (name === 'filter') found.filter = value.slice(0, 400);
    else if (name === 'sort' && COLUMNS.some((c) => c.name === value.replace(/^-/, ''))) {
      found.sort = value;
    }
  }
  return found;
}

function addressOf(want) {
  const parts = [];
  if (want.process !== null) parts.push('process=' + want.process);
  if (want.node !== null) parts.push('node=' + want.node);
  if (want.filter !== '') parts.push('filter=' + encodeURIComponent(want.filter));
  if (want.sort !== 'cpu') parts.push('sort=' + want.sort);
  if (want.tree) parts.push('tree');
  return '#' + parts.join('&');
}

function go(change, isSmall = false) {
  const address = addressOf({ ...wanted(), ...change });
  if (isSmall) {
    history.replaceState(null, '', address);
    drawSoon();
  } else {
    location.hash = address;
  }
}

// --- words, the same as in a terminal ------------------------------------------------------------

function bytes(count) {
  const units = ['', 'K', 'M', 'G', 'T', 'P'];
  let [value, unit] = [count, 0];
  while (value >= 999.5 && unit + 1 < units.length) { value /= 1024; unit += 1; }
  return (unit === 0 || value >= 9.95 ? value.toFixed(0) : value.toFixed(1)) + units[unit];
}

function seconds(value) {
  const whole = value < 59.95 ? Math.floor(value) : Math.round(value);
  const two = (number) => String(number).padStart(2, '0');
  if (whole < 60) return value.toFixed(1) + 's';
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h${two(Math.floor(whole / 60) % 60)}m`;
}

const clock = (epochS) => new Date(epochS * 1000).toISOString().slice(11, 19);
const counted = (count, one, many) => `${count} ${count === 1 ? one : many}`;
const share = (rate) => (rate === null ? '-' : (rate * 100).toFixed(0) + '%');

function nodeName(id) {
  const node = known.nodes.get(id);
  return node?.name ? `${id} (${node.name})` : String(id);
}

// --- which processes, in which order -------------------------------------------------------------

const FIELDS = ['user', 'node', 'home', 'state'];

function termsOf(text) {
  return text.split(/\s+/).filter((word) => word !== '').map((typed) => {
    const word = typed.toLowerCase();
    const at = word.indexOf(':');
    const field = at < 0 ? '' : word.slice(0, at);
    return FIELDS.includes(field) ? [field, word.slice(at + 1)] : ['word', word];
  });
}

function fits([field, text], row) {
  const isNode = (id) =>
    text === String(id) || (known.nodes.get(id)?.name ?? '').toLowerCase() === text;
  switch (field) {
    case 'user': return row.user.toLowerCase() === text;
    case 'node': return isNode(row.node);
    case 'home': return isNode(row.home);
    case 'state':
      return text === 'away' ? row.node !== row.home : row.state.toLowerCase() === text;
    default:
      return String(row.pid) === text
        || [row.command, row.user, row.reason].some((own) => own.toLowerCase().includes(text));
  }
}

const COLUMNS = [
  { name: 'pid', title: 'PID', isNumber: true, of: (row) => row.pid },
  { name: 'user', title: 'User', of: (row) => row.user },
  { name: 'home', title: 'Home', isNumber: true, of: (row) => row.home },
  {
    name: 'node', title: 'Node', isNumber: true, of: (row) => row.node,
    text: (row) => (view.marked.has(row.key) ? `moved to ${row.node}` : String(row.node)),
  },
  { name: 'state', title: 'State', of: (row) => row.state },
  {
    name: 'cpu', title: 'CPU', isNumber: true, isDown: true,
    of: (row) => (row.cpu ?? 0) + row.cpu_s * 1e-12, text: (row) => share(row.cpu),
  },
  {
    name: 'time', title: 'Time', isNumber: true, isDown: true, of: (row) => row.cpu_s,
    text: (row) => seconds(row.cpu_s),
  },
  {
    name: 'memory', title: 'Memory', isNumber: true, isDown: true, of: (row) => row.memory_bytes,
    text: (row) => bytes(row.memory_bytes),
  },
  { name: 'moves', title: 'Moves', isNumber: true, isDown: true, of: (row) => row.moves },
  { name: 'reason', title: 'Why there', of: (row) => row.reason },
  { name: 'command', title: 'Command', of: (row) => row.command },
];

function rowsOf(want) {
  const terms = termsOf(want.filter);
  if (want.node !== null) terms.push(['node', String(want.node)]);
  const rows = [...known.processes.values()].filter((row) => terms.every((t) => fits(t, row)));
  const isReversed = want.sort.startsWith('-');
  const column = COLUMNS.find((c) => c.name === want.sort.replace(/^-/, ''));
  const sign = (column.isDown ?? false) === isReversed ? 1 : -1;
  rows.sort((a, b) => {
    const [x, y] = [column.of(a), column.of(b)];
    if (x !== y) return x < y ? -sign : sign;
    return a.home - b.home || a.pid - b.pid;
  });
  return want.tree ? treeOf(rows) : rows.map((row) => ({ row, depth: 0 }));
}

// Children behind their parents. Parents are what nodes say, so circles are possible.
function treeOf(rows) {
  const byKey = new Map(rows.map((row) => [row.key, row]));
  const children = new Map();
  const isRoot = (row) => row.parent === null || row.parent === row.key || !byKey.has(row.parent);
  for (const row of rows) {
    if (isRoot(row)) continue;
    if (!children.has(row.parent)) children.set(row.parent, []);
    children.get(row.parent).push(row);
  }
  const [placed, all] = [new Set(), []];
  for (const root of [...rows.filter(isRoot), ...rows]) {
    const todo = [{ row: root, depth: 0 }];
    while (todo.length > 0) {
      const next = todo.pop();
      if (placed.has(next.row.key)) continue;
      placed.add(next.row.key);
      all.push(next);
      const below = children.get(next.row.key) ?? [];
      for (const row of below.slice().reverse()) todo.push({ row, depth: next.depth + 1 });
    }
  }
  return all;
}

// --- drawing -------------------------------------------------------------------------------------

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function make(kind, text, className) {
  const element = document.createElement(kind);
  if (text !== undefined) element.textContent = text;
  if (className !== undefined) element.className = className;
  return element;
}

// Has the children of `parent` be one for each item, in their order. An element that is there
// stays, and so does the focus in it.
function match(parent, items, keyOf, begin, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const focused = document.activeElement;
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let element = before.get(key);
    before.delete(key);
    if (element === undefined) {
      element = begin(item);
      element.dataset.key = key;
    }
    update(element, item);
    if (element === at) at = at.nextElementSibling;
    else parent.insertBefore(element, at);
  }
  for (const element of before.values()) element.remove();
  if (focused !== document.activeElement && focused?.isConnected) {
    focused.focus({ preventScroll: true });
  }
}

let isDrawing = false;
function drawSoon() {
  if (isDrawing) return;
  isDrawing = true;
  // Not while the page is hidden.
  requestAnimationFrame(() => { isDrawing = false; draw(); });
}

function draw() {
  // What is dragged is to stay under the pointer.
  if (view.dragged !== null) return;
  const want = wanted();
  drawHead();
  drawNodes(want);
  if (view.isHistoryNew) drawHistory();
  drawProcesses(want);
  drawDetails(want);
  if (view.isLogNew) drawLog();
}

function drawHead() {
  const nodes = [...known.nodes.values()];
  const alive = nodes.filter((node) => node.state === 'alive').length;
  const away = [...known.processes.values()].filter((row) => row.node !== row.home).length;
  if (known.time !== null) {
    const count = counted(known.processes.size, 'process', 'processes');
    setText($('summary'), `${counted(nodes.length, 'node', 'nodes')}, ${alive} alive; ${count}, `
      + `${away} away; as of ${clock(known.time)} UTC`);
  }
  const troubles = [];
  if (view.connection !== 'open') troubles.push(view.connection);
  else if (known.lost !== null) troubles.push(`no picture, trying again: ${known.lost}`);
  for (const { node, why } of known.silent) troubles.push(`node ${node}: ${why}`);
  if (known.leftOut > 0) troubles.push(`${known.leftOut} processes more are not shown`);
  setText($('trouble'), troubles.join('; '));
  $('trouble').hidden = troubles.length === 0;
}

function drawNodes(want) {
  const nodes = [...known.nodes.values()].sort((a, b) => a.id - b.id);
  match($('nodes').tBodies[0], nodes, (node) => node.id, beginNode, (tr, node) => {
    const cells = tr.cells;
    setText(cells[0].firstChild, String(node.id));
    setText(cells[1], node.name || node.address);
    setText(cells[2], node.is_asked ? `${node.state}, asked` : node.state);
    setMeter(cells[3], Math.min(node.load, 2) / 2, node.load.toFixed(2));
    setText(cells[4], node.cores.toFixed(1));
    setText(cells[5], node.speed.toFixed(2));
    const used = node.memory_used_bytes / Math.max(node.memory_total_bytes, 1);
    const [inUse, total] = [node.memory_used_bytes, node.memory_total_bytes].map(bytes);
    setMeter(cells[6], used, `${inUse} of ${total}`);
    setText(cells[7], String(node.guests));
    setText(cells[8], node.takes_guests ? 'yes' : 'no');
    setAttribute(tr, 'aria-current', want.node === node.id ? 'true' : null);
  });
  const options = nodes.map((node) => node.id);
  for (const choice of ['target', 'owned']) {
    match($(choice), options, (id) => id, (id) => new Option('', String(id)), (option, id) => {
      setText(option, nodeName(id));
    });
  }
  $('owner').hidden = known.isReadOnly;
}

function setMeter(cell, value, text) {
  const meter = cell.firstChild;
  const rounded = Math.round(value * 200) / 200;
  if (meter.value !== rounded) meter.value = rounded;
  setText(cell.lastChild, text);
}

function beginNode(node) {
  const tr = make('tr');
  for (let column = 0; column < 9; column += 1) tr.append(make('td'));
  const button = make('button', '', 'plain');
  button.type = 'button';
  button.title = 'Show what runs on this node, or all again';
  button.addEventListener('click', () => go({ node: wanted().node === node.id ? null : node.id }));
  tr.cells[0].append(button);
  for (const [column, name] of [[3, 'load'], [6, 'memory in use']]) {
    const meter = make('meter');
    meter.setAttribute('aria-label', name);
    tr.cells[column].append(meter, make('span'));
  }
  for (const column of [0, 4, 5, 7]) tr.cells[column].className = 'number';
  tr.addEventListener('dragover', (event) => {
    if (view.dragged === null) return;
    event.preventDefault();
    tr.classList.add('over');
  });
  tr.addEventListener('dragleave', () => tr.classList.remove('over'));
  tr.addEventListener('drop', (event) => {
    const process = view.dragged;
    if (process === null) return;
    event.preventDefault();
    tr.classList.remove('over');
    view.dragged = null;
    open(process, node.id);
  });
  return tr;
}

function movesOfLastHour() {
  const from = (known.time ?? Date.now() / 1000) - HOUR_S;
  return known.lines.filter((line) => line.to !== undefined && line.time >= from);
}

function drawHistory() {
  view.isHistoryNew = false;
  const until = known.time ?? 0;
  const moves = movesOfLastHour();
  const freezes = moves.map((line) => line.freeze_ms ?? 0);
  const longest = freezes.reduce((a, b) => Math.max(a, b), 0);
  const since = known.times.length > 0 ? clock(known.times[0]) + ' UTC' : 'now';
  setText($('since'), `${counted(moves.length, 'move', 'moves')}, the longest freeze `
    + `${longest.toFixed(1)} ms. Load is known since ${since}, when this began; moves `
    + 'of before that are those in the journals of the nodes.');
  const top = [...known.loads.values()].flat().reduce((a, b) => Math.max(a, b ?? 0), 1);
  const nodes = [...known.nodes.keys()].sort((a, b) => a - b);
  match($('history').tBodies[0], nodes, (id) => id, beginHistory, (tr, id) => {
    const loads = known.loads.get(id) ?? [];
    const arrivals = moves.filter((line) => line.to === id);
    const departures = moves.filter((line) => line.from === id);
    const x = (time) => (360 * (1 - (until - time) / HOUR_S)).toFixed(1);
    const highest = loads.reduce((a, b) => Math.max(a, b ?? 0), 0);
    const svg = tr.cells[1].firstChild;
    let [line, isOpen] = ['', false];
    known.times.forEach((time, at) => {
      const load = loads[at];
      if (load === null || load === undefined) { isOpen = false; return; }
      line += `${isOpen ? 'L' : 'M'}${x(time)} ${(39 - 38 * load / top).toFixed(1)}`;
      isOpen = true;
    });
    const ticks = arrivals.map((of) => `M${x(of.time)} 0v8`)
      .concat(departures.map((of) => `M${x(of.time)} 40v-8`));
    setAttribute(svg.children[0], 'd', line);
    setAttribute(svg.children[1], 'd', ticks.join(''));
    setAttribute(svg, 'aria-label', `load of node ${id}: highest ${highest.toFixed(2)}`);
    const freeze = departures.reduce((a, of) => Math.max(a, of.freeze_ms ?? 0), 0);
    setText(tr.cells[0], nodeName(id));
    setText(tr.cells[2], highest.toFixed(2));
    setText(tr.cells[3], String(arrivals.length));
    setText(tr.cells[4], String(departures.length));
    setText(tr.cells[5], departures.length > 0 ? freeze.toFixed(1) + ' ms' : '-');
  });
}

function beginHistory() {
  const tr = make('tr');
  for (let column = 0; column < 6; column += 1) {
    tr.append(make('td', '', column > 1 ? 'number' : undefined));
  }
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('viewBox', '0 0 360 40');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('role', 'img');
  for (const name of ['load', 'moves']) {
    const path = document.createElementNS(space, 'path');
    path.setAttribute('class', name);
    svg.append(path);
  }
  tr.cells[1].append(svg);
  return tr;
}

function drawProcesses(want) {
  const rows = rowsOf(want);
  const now = Date.now();
  for (const [key, until] of view.marked) if (until <= now) view.marked.delete(key);
  if ($('filter').value !== want.filter && document.activeElement !== $('filter')) {
    $('filter').value = want.filter;
  }
  $('tree').checked = want.tree;
  const where = want.node === null ? '' : ` on node ${want.node}`;
  const fitting = want.filter === '' ? '' : ' that fit';
  setText($('count'), rows.length === 0 && known.processes.size > 0
    ? `no process${where} fits the filter`
    : counted(rows.length, 'process', 'processes') + fitting + where);
  drawTitles(want);
  const shown = rows.slice(0, view.rowsMax);
  const indent = (depth) => '\u2003'.repeat(Math.min(depth, 20));
  const body = $('processes').tBodies[0];
  match(body, shown, ({ row }) => row.key, beginProcess, (tr, { row, depth }) => {
    COLUMNS.forEach((column, at) => {
      const text = column.text?.(row) ?? String(column.of(row));
      if (at === 0) setText(tr.cells[0].firstChild, text);
      else if (column.name === 'command') setText(tr.cells[at], indent(depth) + text);
      else setText(tr.cells[at], text);
    });
    tr.classList.toggle('moved', view.marked.has(row.key));
    setAttribute(tr, 'aria-current', want.process === row.key ? 'true' : null);
  });
  $('more').hidden = rows.length <= view.rowsMax;
  setText($('more'), `Show more: ${rows.length - shown.length} are not shown`);
}

function drawTitles(want) {
  const name = want.sort.replace(/^-/, '');
  const isReversed = want.sort.startsWith('-');
  const row = $('processes').tHead.rows[0];
  match(row, COLUMNS, (column) => column.name, (column) => {
    const th = make('th', undefined, column.isNumber ? 'number' : '');
    th.scope = 'col';
    const button = make('button', column.title, 'plain');
    button.type = 'button';
    button.addEventListener('click', () => {
      go({ sort: wanted().sort === column.name ? '-' + column.name : column.name }, true);
    });
    th.append(button);
    return th;
  }, (th, column) => {
    const isDown = (column.isDown ?? false) !== isReversed;
    const order = isDown ? 'descending' : 'ascending';
    setAttribute(th, 'aria-sort', column.name === name ? order : null);
    setText(th.firstChild, column.title + (column.name !== name ? '' : isDown ? ' ▼' : ' ▲'));
  });
}

function beginProcess({ row }) {
  const tr = make('tr');
  for (const column of COLUMNS) tr.append(make('td', '', column.isNumber ? 'number' : undefined));
  const button = make('button', '', 'plain');
  button.type = 'button';
  button.setAttribute('aria-label', `process ${row.key}, ${row.command}: where it was, and why`);
  button.addEventListener('click', () => open(row.key, null));
  tr.cells[0].append(button);
  tr.draggable = true;
  tr.addEventListener('dragstart', (event) => {
    view.dragged = row.key;
    event.dataTransfer.setData('text/plain', row.key);
  });
  tr.addEventListener('dragend', () => { view.dragged = null; drawSoon(); });
  return tr;
}

function drawLog() {
  view.isLogNew = false;
  const lines = known.lines.slice(-LINES_SHOWN).reverse();
  match($('log'), lines, (line) => line.number, (line) => {
    const li = make('li');
    li.append(make('time', clock(line.time)), ' ');
    if (line.process) {
      const link = make('a', line.process);
      link.href = '#process=' + line.process;
      li.append(link, ' ');
    }
    li.append(make('span', line.text, line.isRefusal ? 'refused' : undefined));
    return li;
  }, () => {});
}

// --- one process ---------------------------------------------------------------------------------

// Shows a process; with a node, asks what if it went there.
function open(process, node) {
  if (wanted().process !== process) go({ process });
  view.whyOf = null;
  draw();
  $('details').scrollIntoView({ block: 'nearest' });
  if (node === null) $('details').focus();
  else {
    $('target').value = String(node);
    foresee(process, node);
  }
}

function drawDetails(want) {
  const key = want.process;
  $('details').hidden = key === null;
  $('acts').hidden = known.isReadOnly;
  if (key === null) { view.whyOf = null; return; }
  const row = known.processes.get(key);
  setText($('details-title'), row ? `Process ${key}: ${row.command}` : `Process ${key}`);
  setText($('place'), row
    ? `It is on node ${nodeName(row.node)}, born on node ${nodeName(row.home)}: ${row.reason}`
    : 'No process under osmos has this number now.');
  const state = row ? `${key} ${row.node} ${row.moves} ${row.reason}` : `${key} gone`;
  if (view.whyOf === state) return;
  const isOther = view.whyOf === null || !view.whyOf.startsWith(key + ' ');
  view.whyOf = state;
  if (isOther) { $('why').replaceChildren(); setText($('forecast'), ''); }
  askWhy(key, state);
}

async function ask(path, options) {
  const answer = await fetch(path, options);
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.text ?? `status ${answer.status}`);
  return told;
}

async function askWhy(key, state) {
  let parts;
  try {
    parts = whyParts(await ask('/why?process=' + encodeURIComponent(key)));
  } catch (error) {
    parts = [make('p', error.message, 'refused')];
  }
  if (view.whyOf === state) $('why').replaceChildren(...parts);
}

const number = (value, digits = 2) =>
  (value === null || value === undefined ? '-' : value.toFixed(digits));

function whyParts({ now, moves, decisions }) {
  const parts = [];
  if (now && now.places.length > 0) {
    parts.push(make('h3', `Places now; each of its threads gets ${number(now.rate_here)} here`));
    const titles = ['Node', 'Rate', 'Runnable', 'Cores', 'Speed', 'Verdict'];
    parts.push(tableOf(titles, now.places.map((of) => [
      of.node === null ? '-' : nodeName(of.node), number(of.rate), number(of.runnable, 1),
      String(of.cores), number(of.speed), of.but ?? 'it goes',
    ])));
  }
  parts.push(make('h3', moves.length > 0 ? 'Where it was' : 'It has not moved'));
  if (moves.length > 0) {
    const titles = ['Time', 'From', 'To', 'By', 'Freeze', 'Expected', 'Before', 'After', 'Gain'];
    parts.push(tableOf(titles, moves.map((of) => [
      clock(of.time), nodeName(of.from), nodeName(of.to), of.cause, number(of.freeze_ms, 1) + ' ms',
      number(of.rate_expected), number(of.rate_before), number(of.rate_after),
      of.gain === null ? '-' : number(of.gain) + 'x',
    ]).reverse()));
  }
  parts.push(make('h3', 'Decisions'));
  parts.push(tableOf(['Time', 'Verdict', 'Reason'],
    decisions.map((of) => [clock(of.time), of.verdict, of.reason]).reverse()));
  return parts;
}

function tableOf(titles, rows) {
  const table = make('table');
  const head = table.createTHead().insertRow();
  for (const title of titles) {
    const th = make('th', title);
    th.scope = 'col';
    head.append(th);
  }
  const body = table.createTBody();
  for (const row of rows) {
    const tr = body.insertRow();
    for (const text of row) tr.append(make('td', text));
  }
  return table;
}

async function foresee(process, node) {
  const place = $('forecast');
  place.replaceChildren(`asking what if ${process} went to node ${node} ...`);
  const at = known.processes.get(process)?.node ?? process.split(':')[0];
  const query = new URLSearchParams({ process, to: String(node), at: String(at) });
  try {
    const { numbers, verdict } = await ask('/what-if?' + query);
    place.replaceChildren(make('span', numbers), make('br'), make('span', verdict), ' ');
    if (known.isReadOnly) return;
    const button = make('button', `Move it to node ${nodeName(node)}`);
    button.type = 'button';
    button.addEventListener('click', () => order({ order: 'migrate', process, to: String(node) }));
    place.append(button);
    button.focus();
  } catch (error) {
    place.replaceChildren(make('span', error.message, 'refused'));
  }
}

async function order(what) {
  const whom = what.process ?? `node ${nodeName(what.node)}`;
  say(`${what.order} ${whom} ...`, false);
  try {
    const options = { method: 'POST', body: JSON.stringify(what) };
    say((await ask('/order', options)).text, false);
  } catch (error) {
    say('refused: ' + error.message, true);
    const line = { number: `own ${Date.now()}`, time: Date.now() / 1000, process: what.process ?? null };
    known.lines.push({ ...line, text: error.message, isRefusal: true });
    view.isLogNew = true;
    drawSoon();
  }
}

function say(text, isRefusal) {
  $('answer').className = isRefusal ? 'refused' : '';
  setText($('answer'), text);
}

// --- what the server says ------------------------------------------------------------------------

function mark(key) {
  view.marked.set(key, Date.now() + MARKED_MS);
  setTimeout(drawSoon, MARKED_MS + 50);
}

function takeNodes(nodes) {
  if (nodes.length !== known.nodes.size) view.isHistoryNew = true;
  known.nodes = new Map(nodes.map((node) => [node.id, node]));
}

function takeProcess(row) {
  const before = known.processes.get(row.key);
  if (before !== undefined && before.node !== row.node) mark(row.key);
  known.processes.set(row.key, row);
}

function takeLines(lines) {
  for (const line of lines) {
    if (line.number <= known.seen) continue;
    known.seen = line.number;
    known.lines.push(line);
    const isNew = Math.abs(Date.now() / 1000 - line.time) < MARKED_MS / 1000;
    const row = line.process && line.to !== undefined && known.processes.get(line.process);
    // The next picture says it, too, but later.
    if (row && isNew && row.node !== line.to) takeProcess({ ...row, node: line.to });
    view.isHistoryNew ||= line.to !== undefined;
  }
  if (lines.length > 0) {
    known.lines.sort((a, b) => a.time - b.time);
    known.lines.splice(0, known.lines.length - LINES_MAX);
    view.isLogNew = true;
  }
}

const TAKES = {
  hello({ is_read_only, user }) {
    known.isReadOnly = is_read_only;
    setText($('who'), is_read_only ? 'shows only' : `acts as ${user}`);
    // Samples come without it, too.
    loadHistory().catch(() => {});
  },
  whole(told) {
    Object.assign(known, { time: told.time, lost: told.lost, silent: told.silent });
    known.leftOut = told.left_out;
    takeNodes(told.nodes);
    const there = new Set(told.processes.map((row) => row.key));
    for (const key of known.processes.keys()) if (!there.has(key)) known.processes.delete(key);
    told.processes.forEach(takeProcess);
    takeLines(told.lines);
  },
  change(told) {
    Object.assign(known, { time: told.time, lost: null });
    if (told.nodes) takeNodes(told.nodes);
    if (told.silent) known.silent = told.silent;
    if (told.left_out !== undefined) known.leftOut = told.left_out;
    told.gone?.forEach((key) => known.processes.delete(key));
    told.processes?.forEach(takeProcess);
  },
  log(told) {
    const more = `${told.left_out} events more: \`osmos events --all\` has them`;
    if (told.left_out > 0) say(more, false);
    takeLines(told.lines);
  },
  sample({ time, nodes }) {
    if (known.times.length > 0 && known.times.at(-1) >= time) return;
    known.times.push(time);
    for (const id of known.nodes.keys()) if (!known.loads.has(id)) known.loads.set(id, []);
    const loads = new Map(nodes.map(([id, load]) => [id, load]));
    for (const [id, all] of known.loads) {
      while (all.length < known.times.length - 1) all.push(null);
      all.push(loads.get(id) ?? null);
    }
    while (known.times[0] < time - HOUR_S) {
      known.times.shift();
      for (const all of known.loads.values()) all.shift();
    }
    view.isHistoryNew = true;
  },
  lost({ why }) { known.lost = why; },
};

async function loadHistory() {
  const { times, nodes } = await ask('/history');
  known.times = times;
  known.loads = new Map(nodes.map((of) => [of.id, of.load]));
  view.isHistoryNew = true;
  drawSoon();
}

function connect() {
  const source = new EventSource('/live');
  for (const [kind, take] of Object.entries(TAKES)) {
    source.addEventListener(kind, (event) => {
      view.connection = 'open';
      view.toldAt = Date.now();
      take(JSON.parse(event.data));
      drawSoon();
    });
  }
  source.addEventListener('error', async () => {
    view.connection = 'no connection to osmos web, trying again';
    drawSoon();
    // The browser tries again by itself, unless it was refused.
    if (source.readyState !== EventSource.CLOSED) return;
    const status = await fetch('/history').then((answer) => answer.status, () => 0);
    if (status === 401) {
      view.connection = 'nobody is logged in any more: open a new link of `osmos web`';
      drawSoon();
    } else {
      setTimeout(connect, 3000);
    }
  });
}

// --- what the user does --------------------------------------------------------------------------

function listen() {
  const onClick = (id, act) => $(id).addEventListener('click', act);
  const about = () => ({ process: wanted().process });
  addEventListener('hashchange', drawSoon);
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && wanted().process !== null) close();
    const isTyping = event.target.closest?.('input, select, textarea') !== null;
    if (event.key === '/' && !isTyping) {
      event.preventDefault();
      $('filter').focus();
    }
  });
  $('filter').addEventListener('input', () => {
    go({ filter: $('filter').value.slice(0, 400) }, true);
  });
  $('search').addEventListener('submit', (event) => event.preventDefault());
  $('tree').addEventListener('change', () => go({ tree: $('tree').checked }, true));
  onClick('more', () => { view.rowsMax += ROWS_STEP; drawSoon(); });
  onClick('close', close);
  $('orders').addEventListener('submit', (event) => {
    event.preventDefault();
    foresee(wanted().process, Number($('target').value));
  });
  onClick('move', () => order({ order: 'migrate', ...about(), to: $('target').value }));
  onClick('home', () => order({ order: 'migrate', ...about(), to: 'home' }));
  onClick('best', () => order({ order: 'migrate', ...about(), to: 'best' }));
  onClick('pin', () => {
    const row = known.processes.get(wanted().process);
    if (row) order({ order: 'pin', ...about(), node: row.node });
  });
  onClick('send', () => order({ order: 'signal', ...about(), signal: Number($('signal').value) }));
  const owned = () => ({ node: Number($('owned').value) });
  onClick('expel', () => order({ order: 'expel', ...owned() }));
  onClick('noblock', () => order({ order: 'noblock', ...owned() }));
  onClick('drain', () => order({ order: 'drain', ...owned(), on: true }));
  onClick('undrain', () => order({ order: 'drain', ...owned(), on: false }));
  onClick('logout', async () => {
    await fetch('/logout', { method: 'POST' });
    location.replace('/login');
  });
}

function close() {
  const key = wanted().process;
  go({ process: null });
  document.querySelector(`#processes tr[data-key="${key}"] button`)?.focus();
}

listen();
connect();
