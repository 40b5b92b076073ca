// evalrun's pages work without this file. It adds filters without waiting, keys, time zones, a theme and
// live updates. Text enters the page through textContent and setAttribute of fixed names only.
'use strict';
(() => {
const $ = (s, r = document) => r.querySelector(s), $$ = (s, r = document) => [...r.querySelectorAll(s)];
const SVG = 'http://www.w3.org/2000/svg';
const memory = { // what the reader has chosen; some browsers keep nothing for a file
  get(k) { try { return localStorage.getItem('evalrun.' + k); } catch { return null; } },
  set(k, v) { try { localStorage.setItem('evalrun.' + k, v); } catch { /* then it holds for this page */ } },
};
function el(name, attrs = {}, ...kids) {
  const n = document.createElement(name);
  for (const [k, v] of Object.entries(attrs)) if (v !== null && v !== undefined && v !== false) n.setAttribute(k, v);
  n.append(...kids.filter(k => k !== null && k !== undefined));
  return n;
}
function icon(status) {
  const s = document.createElementNS(SVG, 'svg'), u = document.createElementNS(SVG, 'use');
  s.setAttribute('class', 'i ' + status); s.setAttribute('aria-hidden', 'true'); u.setAttribute('href', '#i-' + status); s.append(u);
  return s;
}
const st = status => el('span', { class: 'st ' + status }, icon(status), status);

// Characters that act are shown by name, as the server does in visible.go.
const ACTS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffd]|[\u{e0000}-\u{e007f}]/gu;
const C0 = 'NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US'.split(' ');
const plain = s => s.replace(ACTS, '\ufffd');
function visible(s) {
  const f = document.createDocumentFragment(); let at = 0;
  for (const m of s.matchAll(ACTS)) {
    const c = m[0].codePointAt(0);
    f.append(s.slice(at, m.index), el('b', { class: 'ctl' }, c < 32 ? C0[c] : c === 0xfffd ? '\ufffd' : 'U+' + c.toString(16).toUpperCase().padStart(4, '0')));
    at = m.index + m[0].length;
  }
  f.append(s.slice(at));
  return f;
}
const u = (tag, text, attrs = {}) => { const n = el(tag, { ...attrs, class: ((attrs.class || '') + ' u').trim() }); n.append(visible(text)); return n; };

// ---- theme and time zone
const tools = $('.tools'), theme = $('#theme'), zone = $('#zone');
if (tools) tools.hidden = false;
function setTheme(t) {
  if (t === 'light' || t === 'dark') document.documentElement.dataset.theme = t; else delete document.documentElement.dataset.theme;
  if (theme) theme.value = t === 'light' || t === 'dark' ? t : 'auto';
}
setTheme(memory.get('theme'));
theme?.addEventListener('change', () => { setTheme(theme.value); memory.set('theme', theme.value); });
function age(d) { // "12 min ago", empty for what is more than a week away
  const ms = Date.now() - d, n = Math.abs(ms) / 1000;
  const [size, unit] = n < 60 ? [1, 's'] : n < 3600 ? [60, 'min'] : n < 172800 ? [3600, 'h'] : [86400, 'd'];
  if (n >= 604800) return '';
  const text = Math.floor(n / size) + ' ' + unit;
  return ms >= 0 ? text + ' ago' : 'in ' + text;
}
function setZone(z) {
  for (const t of $$('time[datetime]')) {
    const d = new Date(t.getAttribute('datetime')), utc = d.toISOString().slice(0, 19).replace('T', ' ') + ' UTC';
    const local = d.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' }) + ' ' + (Intl.DateTimeFormat().resolvedOptions().timeZone || '');
    const at = z === 'local' ? local : utc, ago = age(d);
    t.textContent = ago || at; t.title = ago ? at : z === 'local' ? utc : local;
  }
  if (zone) zone.value = z === 'local' ? 'local' : 'utc';
}
setZone(memory.get('zone'));
setInterval(() => { if (!document.hidden) setZone(memory.get('zone')); }, 30000);
for (const d of $$('details[data-fold]')) { // folds are as the reader has left them
  const kept = memory.get(d.id); if (kept) d.open = kept === 'open';
  d.addEventListener('toggle', () => memory.set(d.id, d.open ? 'open' : 'shut'));
}
zone?.addEventListener('change', () => { setZone(zone.value); memory.set('zone', zone.value); });

// ---- the list of rollouts: filtered and sorted here once its columns are there
const form = $('form[data-list]'), table = $('#rollouts');
const usual = { q: '', status: '', agent: '', evaluator: '', tag: '', sort: 'failed', view: 'matrix', hide: '', page: '1' };
const stateOf = search => { const s = { ...usual }; for (const [k, v] of new URLSearchParams(search)) if (k in s) s[k] = v; return s; };
const queryOf = (s, more = {}) => { const q = new URLSearchParams(), t = { ...s, ...more }; for (const k of Object.keys(usual).sort()) if (t[k] !== usual[k]) q.set(k, t[k]); return q.toString(); };
const report = window.evalrunReport, mark = report ? '#?' : '?'; // the file of a report has its state after the #
const here = url => report ? (/^#\?/.test(url.hash) ? url.hash.slice(1) : '') : url.search;
let data = null, state = stateOf(here(location));
let loading = null;
function load() { // asked for when it is first needed
  loading ??= (report ? report.columns() : ask(location.pathname + '/columns')).then(d => {
    data = d; data.text = d.evaluations.map(e => (e.id + '\n' + e.name).toLowerCase()); data.rows = d.evaluations.map(() => []);
    d.columns.evaluation.forEach((e, i) => data.rows[e].push(i));
    for (const [revision, apply] of late.values()) if (revision > d.revision) apply(); // what was told while they came
    return d;
  });
  return loading;
}
function choose() {
  const C = data.columns, S = state, want = S.status ? new Set(S.status.split(',').map(s => data.statuses.indexOf(s))) : null, q = S.q.trim().toLowerCase();
  const agent = S.agent ? data.agents.findIndex(a => plain(a) === S.agent) : -1, by = S.evaluator ? data.evaluators.findIndex(e => plain(e.id) === S.evaluator) : -1;
  const why = q ? data.strings.map(s => s.toLowerCase().includes(q)) : null, text = q ? data.text.map(s => s.includes(q)) : null;
  const tag = S.tag ? data.evaluations.map(e => (e.tags || []).some(t => plain(t) === S.tag)) : null;
  const hit = new Uint8Array(C.id.length);
  for (let i = 0; i < hit.length; i++) {
    if (want && !want.has(C.status[i]) || S.agent && C.agent[i] !== agent || tag && !tag[C.evaluation[i]]) continue;
    if (S.evaluator) { const v = by < 0 ? -1 : C.scores[by][i]; if (v === -1 || v >= 1e6) continue; } // an evaluator that failed has -2
    if (q && !text[C.evaluation[i]] && !why[C.why[i]] && !C.id[i].startsWith(q)) continue;
    hit[i] = 1;
  }
  return hit;
}
const chosen = () => data.agents.map((a, k) => k).filter(k => !state.agent || plain(data.agents[k]) === state.agent);
const RANK = { failed: 0, faulted: 1, unscored: 2, suspended: 3, scoring: 3, running: 4, evaluating: 4, pending: 4, cancelled: 5, passed: 6 };
const rank = i => Math.min(RANK[status(i)], status(i) === 'failed' || status(i) === 'faulted' || !data.columns.scores.some(c => c[i] === -2) ? 9 : 2); // what has failed first
const status = i => data.statuses[data.columns.status[i]];
const compare = (a, b) => a < b ? -1 : +(a > b); // Infinity - Infinity is no number
function sorted(hit) {
  const C = data.columns, last = v => v < 0 ? Infinity : v, agents = chosen();
  if (state.view === 'rollouts') {
    const key = { failed: rank, score: i => last(C.score[i]), flaky: i => -data.spread[C.evaluation[i]][C.agent[i]], time: i => -C.working[i], wait: i => -C.waiting[i] }[state.sort];
    const rows = []; for (let i = 0; i < hit.length; i++) if (hit[i]) rows.push(i);
    return key ? rows.sort((a, b) => compare(key(a), key(b)) || a - b) : rows;
  }
  const groups = [];
  data.rows.forEach((rows, e) => {
    if (!rows.some(i => hit[i])) return;
    const g = { e, rows, working: 0, waiting: 0, rank: Math.min(...rows.filter(i => hit[i]).map(rank)) };
    for (const i of rows) if (agents.includes(C.agent[i])) { g.working += C.working[i]; g.waiting += C.waiting[i]; }
    g.score = Math.min(...agents.map(k => last(data.reduced[e][k]))); g.spread = Math.max(...agents.map(k => data.spread[e][k]));
    groups.push(g);
  });
  const key = { failed: g => g.rank, score: g => g.score, flaky: g => -g.spread, time: g => -g.working, wait: g => -g.waiting }[state.sort];
  return key ? groups.sort((a, b) => compare(key(a), key(b)) || a.e - b.e) : groups;
}
const score = v => v < 0 ? '–' : (v / 1e6).toFixed(3);
function duration(ms) {
  if (ms <= 0) return '–';
  if (ms < 10) return ms.toFixed(1) + ' ms';
  if (ms < 1000) return ms + ' ms';
  if (ms < 6e4) return (ms / 1000).toFixed(2) + ' s';
  const s = Math.floor(ms / 1000);
  if (s < 3600) return Math.floor(s / 60) + ' min ' + s % 60 + ' s';
  return s < 172800 ? Math.floor(s / 3600) + ' h ' + Math.floor(s % 3600 / 60) + ' min' : Math.floor(s / 86400) + ' d ' + Math.floor(s % 86400 / 3600) + ' h';
}
const href = (i, from) => data.base + data.columns.id[i] + from;
const label = i => plain(data.agents[data.columns.agent[i]]) + ', epoch ' + data.columns.epoch[i] + ': ' + status(i) + (data.columns.score[i] >= 0 ? ', score ' + score(data.columns.score[i]) : '');
const td = (name, cls, ...kids) => el('td', { 'data-l': name, class: cls }, ...kids);
function heading(e, url) {
  return el('th', { scope: 'row' }, el('div', { class: 'evn' }, u('a', e.name, { href: url }), ...(e.name === e.id ? [] : [' ', u('code', e.id, { class: 'note' })])));
}
function matrixRow(g, hit, from, one) {
  const C = data.columns, e = data.evaluations[g.e], first = g.rows.filter(i => hit[i]).reduce((a, b) => (!!C.why[b] - !!C.why[a] || rank(a) - rank(b)) > 0 ? b : a);
  const cells = data.agents.map(() => el('span', { class: 'cells' }));
  for (const i of g.rows.slice(0, 900)) cells[C.agent[i]].append(el('a', { id: 'c' + i, class: status(i) + (hit[i] ? '' : ' dim'), href: href(i, from), 'aria-label': label(i) }, icon(status(i))));
  const tags = el('td', { 'data-l': 'Tags' }); for (const t of e.tags || []) tags.append(u('span', t, { class: 'tag' }), ' ');
  return el('tr', {}, heading(e, href(first, from)), data.tagged ? tags : null, ...cells.map((c, k) => td(plain(data.agents[k]), null, c, one < 0 ? ' ' : null, one < 0 ? el('span', { class: 'pair num', id: `p${g.e}-${k}` }, score(data.reduced[g.e][k])) : null)),
    one < 0 ? null : el('td', { 'data-l': 'Score', class: 'num', id: `p${g.e}-${one}` }, score(data.reduced[g.e][one])), td('Working, sum', 'num', duration(g.working)), td('First reason', 'why', ...(C.why[first] && g.rows.length > 1 ? [u('span', data.agents[C.agent[first]] + ' ' + C.epoch[first], { class: 'note' }), ' '] : []), u('span', data.strings[C.why[first]])));
}
const columnBoxes = $$('#choose input');
const hidden = () => new Set(state.hide.split(','));
const shownColumns = () => columnBoxes.filter(c => !hidden().has(c.value));
const columnName = c => c.nextElementSibling;
function rolloutRow(i, from) {
  const C = data.columns, e = data.evaluations[C.evaluation[i]];
  const cell = { agent: () => u('td', data.agents[C.agent[i]], { 'data-l': 'Agent' }), epoch: () => td('Epoch', 'num', String(C.epoch[i])), score: () => td('Score', 'num', score(C.score[i])), working: () => td('Working', 'num', duration(C.working[i])), waiting: () => td('Waiting', 'num', duration(C.waiting[i])), reason: () => td('First reason', 'why', u('span', data.strings[C.why[i]])) };
  const by = (k, v) => td(plain(data.evaluators[k].name), 'num', v === -2 ? 'error' : score(v));
  return el('tr', { id: 'r' + C.id[i], 'data-row': i }, td('Status', null, st(status(i))), heading(e, href(i, from)), ...shownColumns().map(c => cell[c.value] ? cell[c.value]() : by(+c.value.slice(1), C.scores[+c.value.slice(1)][i])));
}
function render() {
  data.tagged = data.evaluations.some(e => e.tags?.length);
  const hit = choose(), all = sorted(hit), matrix = state.view !== 'rollouts', size = matrix ? data.matrixRows : 100;
  const page = Math.max(1, Math.min(Math.ceil(all.length / size), +state.page || 1)), q = queryOf(state, { page: String(page) }), from = q && !report ? '?' + new URLSearchParams({ from: q }) : '';
  const agents = chosen(), one = agents.length === 1 ? agents[0] : -1; // the agent of the column of scores
  const heads = matrix ? ['Evaluation', ...(data.tagged ? ['Tags'] : []), ...data.agents.map(plain), ...(one < 0 ? [] : ['Score']), 'Working, sum', 'First reason'] : [];
  const body = el('tbody'), link = (n, text) => el('a', { class: 'btn', 'data-state': '', href: mark + queryOf(state, { page: String(n) }) }, text);
  for (const r of all.slice((page - 1) * size, page * size)) body.append(matrix ? matrixRow(r, hit, from, one) : rolloutRow(r, from));
  if (!all.length) body.append(el('tr', {}, el('td', { colspan: '9' }, 'Nothing matches these filters. ', el('a', { 'data-state': '', href: mark }, 'Clear them'))));
  const th = (cls, ...kids) => el('th', { scope: 'col', class: cls }, ...kids);
  const columns = shownColumns().map(c => th(/^(agent|reason)$/.test(c.value) ? 'u' : 'num u', ...[...columnName(c).childNodes].map(n => n.cloneNode(true))));
  table.replaceChildren(el('thead', {}, el('tr', {}, ...(matrix ? heads.map(h => th(/^(Score|Working, sum)$/.test(h) ? 'num' : null, h)) : [th(null, 'Status'), th(null, 'Evaluation'), ...columns]))), body);
  for (const p of $$('[data-pager]')) p.replaceChildren(el('div', { class: 'pager' }, page > 1 ? link(page - 1, '‹ Previous') : null,
    el('span', {}, all.length ? `${(page - 1) * size + 1}–${Math.min(all.length, page * size)} of ${all.length}` : 'none'), page * size < all.length ? link(page + 1, 'Next ›') : null));
  $('#found').textContent = `${hit.reduce((a, b) => a + b, 0)} of ${hit.length} rollout${hit.length === 1 ? '' : 's'}`;
  for (const b of $$('a[data-status]')) {
    const on = new Set(state.status.split(',').filter(Boolean)); press(b, on.has(b.dataset.status));
    on.has(b.dataset.status) ? on.delete(b.dataset.status) : on.add(b.dataset.status);
    b.setAttribute('href', mark + queryOf(state, { page: '1', status: data.statuses.filter(s => on.has(s)).join(',') }));
  }
  for (const b of $$('a[data-view]')) { press(b, b.dataset.view === state.view); b.setAttribute('href', mark + queryOf(state, { page: '1', view: b.dataset.view })); }
  const menu = $('#choose'); if (menu) menu.hidden = matrix;
  for (const c of columnBoxes) c.checked = !hidden().has(c.value);
  for (const f of form.elements) if (f.name in state && f !== document.activeElement) f.value = state[f.name];
  cursor = -1; openers(table);
}
const press = (b, on) => on ? b.setAttribute('aria-current', 'true') : b.removeAttribute('aria-current');
async function go(next, push) { // shows another state of the list, by way of the server if the columns are not to be had
  const q = queryOf(next), url = report ? mark + q : location.pathname + (q ? '?' + q : '');
  try { await load(); } catch { location.assign(url); return; }
  state = next;
  const t = performance.now(); render(); performance.measure('list', { start: t });
  history[push ? 'pushState' : 'replaceState'](null, '', url);
}
if (form && table) {
  const read = () => { const s = { ...state, page: '1' }; for (const f of form.elements) if (f.name in usual && f.type !== 'hidden') s[f.name] = f.value; s.hide = columnBoxes.filter(c => !c.checked).map(c => c.value).join(','); return s; };
  form.addEventListener('input', () => go(read(), false));
  form.addEventListener('submit', e => { e.preventDefault(); go(read(), true); });
  document.addEventListener('click', e => {
    const a = e.target.closest?.('a[data-state]');
    if (!a || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
    e.preventDefault();
    go(stateOf(here(new URL(a.href))), true).then(() => { if (a.closest('.pager') || !a.isConnected) { table.scrollIntoView({ block: 'start' }); $('a', table)?.focus({ preventScroll: true }); } });
  });
  addEventListener('popstate', () => { if (!report || !/^#r\//.test(location.hash)) go(stateOf(here(location)), false); });
  if (report && here(location)) go(state, false);
}

// ---- a row is opened in its place: why the rollout has its status and score, or what both sides of a
// comparison have made of an evaluation
const opens = [table, ...$$('table[data-outputs]')].filter(Boolean);
function openers(t) {
  for (const a of t ? $$('tbody th a', t) : []) a.parentElement.prepend(el('button', { type: 'button', class: 'open', 'aria-expanded': 'false', 'aria-label': (t === table ? 'Why: ' : 'Outputs: ') + plain(a.textContent) }));
}
async function ask(url) {
  const r = await fetch(url);
  if (!r.ok) throw new Error(r.status);
  return r.json();
}
async function why(link) {
  const d = await (report ? report.why(decodeURIComponent(link.hash.slice(3))) : ask(link.pathname + '/why')), body = el('tbody');
  for (const e of d.evaluators || []) body.append(el('tr', {}, u('th', e.name, { scope: 'row' }), td(null, 'num', e.score), u('td', e.said || '')));
  return [u('b', d.title), ' ', el('a', { href: link.href }, 'the whole rollout'), d.why ? u('pre', d.why, { tabindex: '0' }) : '', body.firstChild ? el('table', {}, body) : ''];
}
async function outputs(link) {
  const d = await ask(link.pathname + '/words' + link.search);
  const side = (name, tag, s) => {
    if (!s.url) return el('div', {}, el('b', {}, name), ' has no rollout');
    const pre = u('pre', '', { tabindex: '0' });
    for (const [text, differs] of s.words || []) pre.append(differs ? el(tag, {}, visible(text)) : visible(text));
    return el('div', {}, el('b', {}, name), ' ', st(s.status), ' ' + s.score + ' ', el('a', { href: s.url }, 'the rollout'), pre, s.more ? 'and ' + s.more + ' bytes more' : '');
  };
  const parts = d.pairs.flatMap(p => [el('b', {}, 'Epoch ' + p.epoch), el('div', { class: 'grid2' }, side('A', 'del', p.a), side('B', 'ins', p.b))]);
  return d.more ? [...parts, 'and ' + d.more + ' more epochs'] : parts;
}
async function toggle(button) {
  const row = button.closest('tr'), shut = row.nextElementSibling, own = button.closest('table') === table;
  button.setAttribute('aria-expanded', String(!shut?.matches('.opened')));
  if (shut?.matches('.opened')) { shut.remove(); return; }
  const box = el('td', { colspan: row.children.length, role: 'status' }, 'Loading'), link = $('th a', row);
  row.after(el('tr', { class: 'opened' }, box));
  try { box.replaceChildren(...await (own ? why : outputs)(link)); } catch { box.textContent = 'The server does not answer. The name leads to the page of the ' + (own ? 'rollout.' : 'outputs.'); }
  box.scrollIntoView({ block: 'nearest' });
}
for (const t of opens) {
  t.addEventListener('click', e => { const b = e.target.closest('button.open'); if (b) toggle(b); });
  openers(t);
}

// ---- what still goes on lasts longer than when the page was made
const grows = $$('[data-grows]').map(n => [n, +n.dataset.grows]);
if (grows.length) setInterval(() => {
  if (!ended) for (const [n, ms] of grows) { const t = duration(Math.round(ms + performance.now())); n.textContent = n.matches('text') ? '// ' + t + ' //' : t; }
}, 10000);

// ---- a log is followed until its agent has ended, or its reader scrolls up
const following = $('#follow'), log = $('#log');
if (following && 'EventSource' in window) {
  let tail = null, top = 0, held = log.textContent.length;
  const stop = text => { tail?.close(); tail = null; following.setAttribute('aria-pressed', 'false'); $('#following').textContent = text; };
  following.hidden = false;
  following.addEventListener('click', () => {
    if (tail) { stop('The agent was running.'); return; }
    tail = new EventSource(following.dataset.follow);
    following.setAttribute('aria-pressed', 'true'); $('#following').textContent = 'What is added appears here.';
    tail.addEventListener('log', e => {
      for (const [text, cls, control] of JSON.parse(e.data).spans) { log.append(el(control ? 'b' : 'span', { class: control ? 'ctl' : cls || null }, text)); held += text.length; }
      while (held > 65536 && log.firstChild !== log.lastChild) { held -= log.firstChild.textContent.length; log.firstChild.remove(); }
      following.dataset.follow = following.dataset.follow.replace(/from=.*/, 'from=' + e.lastEventId);
      log.scrollTop = log.scrollHeight; top = log.scrollTop;
    });
    tail.addEventListener('end', e => { stop('The agent has ended: ' + JSON.parse(e.data) + '.'); following.hidden = true; });
    tail.addEventListener('error', () => { if (tail?.readyState === 2) stop('Not connected.'); });
    log.scrollTop = log.scrollHeight; top = log.scrollTop;
  });
  log.addEventListener('scroll', () => { if (tail && log.scrollTop < top - 4) stop('Stopped, because you scrolled up.'); });
}

// ---- keys: all of them can be switched off, as WCAG 2.1.4 asks
let cursor = -1;
const items = () => $$('#rollouts tbody tr, table[data-keys] tbody tr').filter(n => n.offsetParent && !n.closest('.opened'));
function move(d) {
  const all = items(); if (!all.length) return;
  all[cursor]?.classList.remove('cur'); cursor = Math.max(0, Math.min(all.length - 1, cursor + d));
  all[cursor].classList.add('cur'); $('a', all[cursor])?.focus({ preventScroll: true }); all[cursor].scrollIntoView({ block: 'nearest' });
}
const keys = $('#keys'), keysOn = $('#keyson');
const help = () => keys?.showModal();
document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey || keys?.open) return;
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName);
  if (e.key === 'Escape' && typing) { e.target.blur(); return; }
  if (typing || memory.get('keys') === 'off') return;
  const follow = rel => $(`a[rel="${rel}"]`)?.click();
  const act = { j: () => move(1), k: () => move(-1), o: () => $('a', items()[cursor] || el('p'))?.click(), x: () => $('button.open', items()[cursor] || el('p'))?.click(), '/': () => $('input[type=search]')?.focus(), '?': help, n: () => follow('next'), p: () => follow('prev') }[e.key];
  if (act) { e.preventDefault(); act(); }
});
if (keysOn) { keysOn.checked = memory.get('keys') !== 'off'; keysOn.addEventListener('change', () => memory.set('keys', keysOn.checked ? 'on' : 'off')); }
$('#help')?.addEventListener('click', help);
$('button', keys || el('p'))?.addEventListener('click', () => keys.close());
// ---- live: texts and marks by the ids of their elements, rollouts by their places; nothing moves
const stream = document.body.dataset.live, live = $('#live'), newer = $('#newer');
let said = 0, telling = 0, ended = live?.lastElementChild.textContent === 'final';
const late = new Map(), changed = new Set(); // what has become of rollouts and pairs, and the rollouts to look at
const say = t => { if (live) live.lastElementChild.textContent = t; };
function offer(text, again, link = 'Load the page again') { // says politely that there is more to see than was changed here
  if (!newer || !newer.hidden && (!again || newer.textContent === text + ' ' + link)) return;
  newer.replaceChildren(text + ' ', el('a', { href: location.pathname + location.search }, link));
  newer.hidden = false;
}
function announce() { // at most each 10 s, so that nobody is talked to all the time
  const due = said + 10000 - Date.now();
  if (due > 0 && said) { telling ||= setTimeout(announce, due); return; }
  said = Date.now(); telling = 0;
  const n = changed.size; if (!n) return;
  offer(state.status ? `${n} new:` : `${n} rollout${n === 1 ? ' has' : 's have'} changed:`, true, 'show');
}
function drawBar() { // from the counts, which were changed before
  const bar = $('#bar'), counts = $$('.counts [data-status]').map(a => [a.dataset.status, +$('.num', a).textContent]).filter(c => c[1]);
  if (!bar) return;
  const all = counts.reduce((a, c) => a + c[1], 0), rect = a => { const r = document.createElementNS(SVG, 'rect'); for (const k in a) r.setAttribute(k, a[k]); r.setAttribute('height', '100%'); return r; };
  let at = 0; const parts = [];
  for (const [s, n] of counts) { const x = 100 * at / all + '%'; parts.push(rect({ class: 'f' + s, x, width: 100 * n / all + '%' })); if (at) parts.push(rect({ class: 'gap', x, width: 1.5 })); at += n; }
  bar.replaceChildren(...parts); bar.setAttribute('aria-label', counts.map(c => c[1] + ' ' + c[0]).join(', '));
}
function setStatus(n, status, text) { // a cell, a row or a mark gets another status
  const i = $('svg.i', n); if (!i) return;
  i.setAttribute('class', 'i ' + status); $('use', i).setAttribute('href', '#i-' + status);
  if (text !== undefined) i.parentElement.replaceChildren(i, text);
}
function patch(p) {
  for (const [id, text] of Object.entries(p.text || {})) {
    if (id === 'newer') { offer(text); continue; }
    const n = document.getElementById(id); if (n && n.textContent !== text) n.textContent = text;
    if (n && id === 'n-asked') n.hidden = text === '0';
  }
  for (const [id, status] of Object.entries(p.mark || {})) { const n = document.getElementById(id); if (n) { setStatus(n, status); (n.matches('.big') ? n : $('.st', n))?.setAttribute('class', (n.matches('.big') ? 'big ' : 'st ') + status); } }
  for (const n of $$('.counts [data-status]')) if ($('.num', n).textContent !== '0') n.hidden = false;
  drawBar();
  const set = new Map(p.set.map(s => [s[0], s])), wanted = state.status.split(',').filter(Boolean), seen = new Set();
  const tell = (key, apply) => { late.set(key, [+p.text['t-rev'], apply]); if (data) apply(); };
  for (const c of $$('.cells a[id]')) { // the cells and rows that are shown
    const s = set.get(+c.id.slice(1)); if (!s) continue;
    const [row, status, score] = s, label = c.getAttribute('aria-label').replace(/: [^:]*$/, ': ' + status + (score === '–' ? '' : ', score ' + score));
    if (!c.classList.contains('dim') && c.classList.contains(status)) seen.add(row);
    if (c.getAttribute('aria-label') === label) continue;
    if (p.whole) changed.add(row);
    setStatus(c, status); c.setAttribute('class', status + (c.classList.contains('dim') ? ' dim' : '')); c.setAttribute('aria-label', label);
    if (c.matches('[aria-current]')) { // the page of this rollout
      const m = $('#status .st'); setStatus(m, status, status); m.setAttribute('class', 'st ' + status); $('#score').textContent = score;
      offer('This rollout is ' + status + ' now.', true);
    }
  }
  for (const r of $$('tr[data-row]')) {
    const s = set.get(+r.dataset.row), m = $('.st', r), cell = $('[data-l=Score]', r); if (!s) continue;
    if (m.classList.contains(s[1])) seen.add(s[0]);
    if (m.classList.contains(s[1]) && cell.textContent === s[2]) continue;
    if (p.whole) changed.add(s[0]);
    setStatus(m, s[1], s[1]); m.setAttribute('class', 'st ' + s[1]); cell.textContent = s[2];
  }
  for (const s of set.values()) {
    tell(s[0], () => apply(s));
    if (wanted.length ? wanted.includes(s[1]) && !seen.has(s[0]) && !p.whole : !p.whole) changed.add(s[0]); else if (wanted.length && !wanted.includes(s[1])) changed.delete(s[0]);
  }
  for (const [e, a, value, spread] of p.pairs || []) {
    const n = document.getElementById(`p${e}-${a}`); if (n) n.textContent = score(value);
    tell(`p${e}-${a}`, () => { data.reduced[e][a] = value; data.spread[e][a] = spread; });
  }
  const again = $('#rescored'), good = $('#good');
  if (good) good.hidden = !p.good;
  if (again && p.rescored > +again.dataset.n) offer('This run was scored again:', true, 'show');
  else if (p.final && !ended && !p.gone) offer('The run has ended.');
  else if (table && changed.size && !p.final) announce();
  ended = p.final; if (ended) { say(p.gone ? 'removed' : 'final'); const dot = $('.dotlive', live || document); if (dot) dot.hidden = true; }
  if (ended && own.has(stream)) unfollow(stream); else if (!ended && !own.has(stream)) followRun();
}
function apply([row, status, score]) { data.columns.status[row] = data.statuses.indexOf(status); data.columns.score[row] = score === '–' ? -1 : Math.round(+score * 1e6); }

// ---- one stream for all tabs of the browser, since HTTP/1.1 has six connections for all of them. Of the
// tabs that are seen one holds a lock and has the stream; it tells the others. A tab that nobody sees
// follows nothing.
const me = String(Math.random()), own = new Map(), all = new Map(); // what this tab follows; as the one with the stream: what all follow, by URL and tab
const bus = 'BroadcastChannel' in window && navigator.locks ? new BroadcastChannel('evalrun') : null;
let source = null, release = null, asking = null, opening = 0, seen = false;
const post = m => bus?.postMessage({ ...m, tab: me });
const wanted = () => [...own].map(([url, o]) => [url, o.since]);
function reopen(after) { // a moment later, so that tabs that come together are told together
  clearTimeout(opening); opening = setTimeout(open, after);
}
function open() {
  source?.close(); source = null;
  const urls = [...all.keys()].slice(0, 64); if (!release || !urls.length) return;
  const q = new URLSearchParams();
  for (const url of urls) { q.append('of', url); q.append('since', String(Math.min(...all.get(url).values()))); }
  const s = source = new EventSource('/tabs?' + q);
  const tell = (m) => { told(m); post(m); };
  s.addEventListener('open', () => tell({ state: 'live', urls }));
  s.addEventListener('error', () => { if (s !== source) return; tell({ state: 'not connected, trying again', urls }); const shut = s.readyState === 2; s.close(); reopen(shut ? 5000 : 2000); });
  urls.forEach((url, i) => {
    for (const type of ['patch', 'reload', 'open-questions']) s.addEventListener(i + ' ' + type, e => {
      const id = /^.runs/.test(url) ? +e.lastEventId : 0;
      for (const tab of all.get(url)?.keys() || []) all.get(url).set(tab, id);
      tell({ url, type, id, data: e.data });
    });
    s.addEventListener(i + ' end', () => { if (s === source && all.has(url)) reopen(5000); });
  });
}
function told(m) { // what the stream says, wherever it is
  for (const url of m.urls || [m.url]) {
    const o = own.get(url); if (!o || !seen) continue;
    if (m.state) { o.state?.(m.state); continue; }
    if (m.type === 'patch' && m.id && m.id <= o.since) continue; // another tab has asked for it
    o.since = m.id; o.told(m.type, JSON.parse(m.data));
  }
}
function ask4(tab, wants) { // a tab follows these
  for (const [url, since] of wants) {
    const tabs = all.get(url) || new Map(), at = [...tabs.values()][0]; // all of them know the same
    all.set(url, tabs.set(tab, since));
    if (at !== undefined && at === since && since && source?.readyState === 1) { const m = { state: 'live', urls: [url] }; told(m); post(m); } else reopen(50);
  }
}
function drop(tab, url) {
  for (const [u, tabs] of all) if ((!url || u === url) && tabs.delete(tab) && !tabs.size) { all.delete(u); reopen(50); }
}
if (bus) bus.onmessage = e => {
  const m = e.data;
  if (m.ask) { if (seen && own.size) post({ want: wanted() }); }
  else if (m.want) { if (release) ask4(m.tab, m.want); }
  else if (m.drop) { if (release) drop(m.tab, m.url); }
  else told(m);
};
function lead(end) { release = end; all.clear(); ask4(me, wanted()); post({ ask: true }); }
function join() { // this tab is seen, and follows something
  if (seen || document.hidden || !own.size || !('EventSource' in window)) return;
  seen = true;
  if (!bus) { lead(() => {}); return; }
  asking = new AbortController();
  navigator.locks.request('evalrun', { signal: asking.signal }, () => new Promise(end => { if (seen) lead(end); else end(); })).catch(() => { /* it was left before its turn */ });
  post({ want: wanted() });
}
function leave() {
  if (!seen) return;
  seen = false; post({ drop: true }); asking?.abort();
  clearTimeout(opening); source?.close(); source = null; release?.(); release = null;
}
function follow(url, since, tell, state) {
  own.set(url, { since, told: tell, state });
  if (!seen) join(); else if (release) ask4(me, [[url, since]]); else post({ want: [[url, since]] });
}
function unfollow(url) {
  own.delete(url);
  if (!own.size) leave(); else if (release) drop(me, url); else post({ drop: true, url });
}
window.evalrunFollow = follow;
const revision = () => +($('#t-rev')?.textContent || 0);
function followRun() {
  follow(stream, own.get(stream)?.since || revision(), (type, p) => { patch(p); if (type === 'reload') offer('Much has changed.', true); }, t => { if (!ended) say(t); });
}
if (stream && !ended) followRun();
document.addEventListener('visibilitychange', () => {
  if (document.hidden) { leave(); return; }
  join();
  if (stream && ended && $('#rescored')) fetch(stream + '?once&since=' + revision()).then(r => r.ok ? r.json() : null).then(p => p && patch(p)).catch(() => { /* it is asked again the next time */ });
});
addEventListener('pagehide', leave);
addEventListener('pageshow', join);
// ---- what stands in a box can be copied
function copies(root = document) {
  for (const pre of $$('pre', root)) {
    if (pre.parentElement.matches('.copybox') || !pre.textContent.trim()) continue;
    const b = el('button', { type: 'button', class: 'copy' }, pre.matches('[data-cut]') ? 'Copy this part' : 'Copy'), box = el('div', { class: 'copybox' });
    pre.replaceWith(box); box.append(pre, b);
  }
}
document.addEventListener('click', async e => {
  const b = e.target.closest?.('button.copy'); if (!b) return;
  const was = b.textContent, from = b.previousElementSibling, text = b.dataset.copy ?? from.textContent;
  if (/^(Copied|Selected)$/.test(was)) return;
  try { await navigator.clipboard.writeText(text || location.href); b.textContent = 'Copied'; } catch { if (from) getSelection().selectAllChildren(from); b.textContent = 'Selected'; } // Ctrl-C copies it then
  setTimeout(() => { b.textContent = was; }, 2000);
});
for (const b of $$('button.copy[data-copy]')) b.hidden = !!report;
document.addEventListener('click', e => { for (const m of $$('details.menu[open]')) if (!m.contains(e.target)) m.open = false; });
document.addEventListener('keydown', e => { if (e.key === 'Escape') for (const m of $$('details.menu[open]')) { m.open = false; $('summary', m).focus(); } });
if (!report) copies();
const shut = new Set(); // folds that are open on paper alone
addEventListener('beforeprint', () => { for (const d of $$('details:not([open], .menu)')) { shut.add(d); d.open = true; } });
addEventListener('afterprint', () => { for (const d of shut) d.open = false; shut.clear(); });
document.documentElement.dataset.ready = 'yes';
})();
