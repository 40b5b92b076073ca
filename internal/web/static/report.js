// The file of a report has its data in itself: columns of all rollouts, and their details in blocks that
// are opened when they are asked for. app.js shows the list; this file opens rollouts.
'use strict';
(() => {
const $ = (s, r = document) => r.querySelector(s);
async function unpack(id) {
  const text = atob($('#' + id).textContent), bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'))).text());
}
let columns = null;
const blocks = new Map();
const block = n => { if (!blocks.has(n)) blocks.set(n, unpack('d' + n)); return blocks.get(n); };
const load = () => columns ??= unpack('columns');
const score = v => v < 0 ? '' : (v / 1e6).toFixed(3);
async function rollout(id) { // a rollout with its details, null if they were left out; undefined if there is none
  const d = await load(), at = d.columns.id.indexOf(id), C = d.columns;
  if (at < 0) return undefined;
  return { name: d.evaluations[C.evaluation[at]].name, agent: d.agents[C.agent[at]], epoch: C.epoch[at], status: d.statuses[C.status[at]], score: score(C.score[at]), one: (await block(Math.floor(at / d.block)))[at % d.block] };
}
const OUT = 'Its details were left out of this report (--failed-only).';
async function why(id) { // what a row shows that is opened in its place
  const r = await rollout(id);
  return { title: `${r.agent}, epoch ${r.epoch}: ${r.status}${r.score && ', score ' + r.score}`, why: r.one ? r.one.why : OUT, evaluators: r.one?.evaluators };
}
window.evalrunReport = { columns: load, why };

const ACTS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffd]|[\u{e0000}-\u{e007f}]/gu;
const name = c => { const n = c.codePointAt(0); return n === 27 ? 'ESC' : 'U+' + n.toString(16).toUpperCase().padStart(4, '0'); };
function put(tag, text, cls) { // text that somebody else wrote
  const n = document.createElement(tag); let at = 0;
  n.setAttribute('class', ((cls || '') + ' u').trim());
  for (const m of text.matchAll(ACTS)) {
    const b = document.createElement('b'); b.setAttribute('class', 'ctl'); b.textContent = name(m[0]);
    n.append(text.slice(at, m.index), b); at = m.index + m[0].length;
  }
  n.append(text.slice(at));
  return n;
}
const dialog = $('#detail');
function part(box, title, text) { // the text may scroll, by keys as well
  if (!text) return;
  const pre = put('pre', text), n = document.createElement('div'); pre.setAttribute('tabindex', '0');
  n.append(put('h3', title), pre); box.append(n);
}
async function show() {
  const m = /^#r\/(.*)$/.exec(location.hash);
  if (!m) { if (dialog.open) dialog.close(); return; }
  let id = m[1]; try { id = decodeURIComponent(id); } catch { /* then it is none of ours */ }
  const r = await rollout(id), box = $('div', dialog), one = r?.one;
  if (location.hash !== m[0]) return; // another one was asked for meanwhile
  box.replaceChildren();
  if (!r) { box.append(put('p', 'This report has no rollout ' + id)); if (!dialog.open) dialog.showModal(); return; }
  box.append(put('h2', r.name), put('p', `${r.status} · ${r.agent}, epoch ${r.epoch}${r.score && ' · score ' + r.score}`, 'note'));
  if (!one) { box.append(put('p', OUT)); }
  else {
    box.append(put('p', 'rollout ' + one.id, 'note'));
    part(box, 'Why', one.why);
    if (one.evaluators?.length) {
      const t = document.createElement('table'), body = document.createElement('tbody');
      for (const v of one.evaluators) { const tr = document.createElement('tr'), th = put('th', v.name); th.setAttribute('scope', 'row'); tr.append(th, put('td', v.score, 'num'), put('td', v.said || '')); body.append(tr); }
      t.append(body); box.append(put('h3', 'Evaluators'), t);
    }
    const values = document.createElement('div'); values.setAttribute('class', 'grid3');
    for (const [title, text] of one.texts || []) part(/^(Input|Expected output|Criteria|Output)$/.test(title) ? values : box, title, text);
    box.append(values);
  }
  if (!dialog.open) dialog.showModal();
}
addEventListener('hashchange', show);
dialog.addEventListener('close', () => { if (/^#r\//.test(location.hash)) history.back(); });
$('button', dialog).addEventListener('click', () => dialog.close());
show();
})();
