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
window.evalrunReport = { columns: () => columns ??= unpack('columns') };

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
function part(title, text) { if (text) $('div', dialog).append(put('h3', title), put('pre', text)); }
async function show() {
  const m = /^#r\/(.*)$/.exec(location.hash);
  if (!m) { if (dialog.open) dialog.close(); return; }
  const d = await window.evalrunReport.columns(), at = d.columns.id.indexOf(decodeURIComponent(m[1])), box = $('div', dialog);
  box.replaceChildren();
  if (at < 0) { box.append(put('p', 'This report has no rollout ' + m[1])); if (!dialog.open) dialog.showModal(); return; }
  const e = d.evaluations[d.columns.evaluation[at]], one = (await block(Math.floor(at / d.block)))[at % d.block];
  box.append(put('h2', e.name), put('p', `${d.statuses[d.columns.status[at]]} · ${d.agents[d.columns.agent[at]]}, epoch ${d.columns.epoch[at]}` +
    (d.columns.score[at] < 0 ? '' : ` · score ${(d.columns.score[at] / 1e6).toFixed(3)}`), 'note'));
  if (!one) { box.append(put('p', 'Its details were left out of this report (--failed-only).')); }
  else {
    box.append(put('p', 'rollout ' + one.id, 'note'));
    part('Why', one.why);
    if (one.evaluators?.length) {
      const t = document.createElement('table'), body = document.createElement('tbody');
      for (const v of one.evaluators) { const tr = document.createElement('tr'), th = put('th', v.name); th.setAttribute('scope', 'row'); tr.append(th, put('td', v.score, 'num'), put('td', v.said || '')); body.append(tr); }
      t.append(body); box.append(put('h3', 'Evaluators'), t);
    }
    for (const [title, text] of one.texts || []) part(title, text);
  }
  if (!dialog.open) dialog.showModal();
}
addEventListener('hashchange', show);
dialog.addEventListener('close', () => { if (/^#r\//.test(location.hash)) history.back(); });
$('button', dialog).addEventListener('click', () => dialog.close());
show();
})();
