// The inbox works without this file. It adds five seconds in which an answer can be taken back, a look at
// what exactly is sent, keys, and what others have answered meanwhile. app.js says the rules.
'use strict';
(() => {
const $ = (s, r = document) => r.querySelector(s), $$ = (s, r = document) => [...r.querySelectorAll(s)];
const hold = 5000, asks = $('#asks'), waiting = new Map(); // answers that can still be taken back, by trigger
if (!asks) return;
let csrf = asks.dataset.csrf;
for (const n of $$('.js')) n.hidden = false;
const words = { approve: 'Approve', deny: 'Deny', rate: 'Rate' };
const node = (name, text, cls) => { const n = document.createElement(name); n.textContent = text; if (cls) n.setAttribute('class', cls); return n; };

function say(card, text, role, payload) { // says something in place of the form
  const form = $('form', card), box = node('div', '', 'outcome');
  box.setAttribute('role', role);
  box.append(node('p', text, 'u'));
  if (payload) box.append(node('pre', payload, 'u'));
  $('.outcome', card)?.remove();
  form.hidden = true; form.after(box);
  return box;
}
function back(card, text) { // the form as it was, with what is wrong
  $('.outcome', card)?.remove();
  const form = $('form', card), said = $('.said', form);
  form.hidden = false; said.textContent = text; said.hidden = !text;
}
async function post(card, body, again) {
  body.set('csrf', csrf); body.set('confirm', '1');
  let reply;
  try {
    const r = await fetch('/triggers/' + card.dataset.trigger + '/answer', { method: 'POST', headers: { Accept: 'application/json' }, body });
    if (!/json/.test(r.headers.get('Content-Type') || '')) throw new Error('the server answered ' + r.status);
    reply = await r.json();
  } catch (e) {
    back(card, 'Not sent: ' + (e.message || 'the server is away') + '. Try it again; what you have entered is here.');
    return;
  }
  if (reply.csrf && reply.csrf !== csrf && !again) { csrf = reply.csrf; return post(card, body, true); }
  if (reply.outcome === 'wrong') { back(card, reply.text); $('.said', card).classList.add('failed'); $('.said', card).scrollIntoView({ block: 'nearest' }); return; }
  card.classList.add('done');
  say(card, reply.text, reply.outcome === 'late' ? 'alert' : 'status', reply.payload);
  offer();
}
function answer(card, form, submitter) {
  const body = new URLSearchParams(new FormData(form, submitter)), verb = body.get('verb');
  $('.said', form).hidden = true;
  const box = say(card, '', 'status'), text = $('p', box), undo = node('button', 'Undo'), end = Date.now() + hold;
  undo.setAttribute('type', 'button');
  const show = () => { text.textContent = words[verb] + ' is sent in ' + Math.max(1, Math.ceil((end - Date.now()) / 1000)) + ' s'; };
  const tick = setInterval(show, 250), stop = () => { clearInterval(tick); clearTimeout(timer); waiting.delete(card.dataset.trigger); };
  const timer = setTimeout(() => { stop(); text.textContent = 'Sending …'; undo.remove(); post(card, body); }, hold);
  undo.addEventListener('click', () => { stop(); back(card, ''); (submitter || $('button', form)).focus(); });
  box.append(undo); show(); undo.focus();
  waiting.set(card.dataset.trigger, stop);
}
// trim and quote do what the server does with a text. quote writes a JSON string as Go writes it.
const trim = text => text.replace(/^\p{White_Space}+|\p{White_Space}+$/gu, '');
const quote = text => JSON.stringify(text).replace(/[\u2028\u2029]/g, c => '\\u' + c.charCodeAt(0).toString(16));
function preview(form) { // what exactly each button sends: data goes as it was entered
  const reason = trim(form.elements.reason.value), data = trim(form.elements.data?.value ?? '');
  let error = '';
  if (data) try { JSON.parse(data); } catch (e) { error = 'Data is not JSON: ' + e.message; }
  for (const at of $$('.preview', form)) {
    const verb = at.dataset.verb;
    at.textContent = error || `{"action":"${verb}","approved":${verb === 'approve'}` + (reason && ',"reason":' + quote(reason)) + (data && ',"data":' + data) + '}';
    at.classList.toggle('failed', !!error);
    at.parentNode.hidden = !!error && verb !== 'approve'; // it is said once
  }
}
for (const form of $$('form[data-answer]')) {
  const card = form.closest('article');
  form.addEventListener('submit', e => { e.preventDefault(); answer(card, form, e.submitter); });
  form.addEventListener('input', () => preview(form));
}
addEventListener('pageshow', () => $$('form[data-answer]').forEach(preview)); // by then a browser has put back what was entered before
addEventListener('beforeunload', e => { if (waiting.size) e.preventDefault(); });

// ---- keys, for the card that is marked: what nobody has marked is never answered
let marked = null;
const open = card => !card.classList.contains('done') && $('form', card) && !$('form', card).hidden;
function mark(card) {
  if (!card?.matches('article.ask')) return;
  marked?.classList.remove('cur');
  (marked = card).classList.add('cur');
}
function go(d) { // marks the open card after the marked one, or before it; at first the first
  const all = $$('article.ask', asks), at = all.indexOf(marked);
  mark(at < 0 ? all.find(open) : d > 0 ? all.slice(at + 1).find(open) : all.slice(0, at).findLast(open));
  marked?.scrollIntoView({ block: 'nearest' });
}
for (const name of ['focusin', 'click']) asks.addEventListener(name, e => mark(e.target.closest('article')));
const edit = card => { const d = $('details', card); if (d) d.open = true; $('input:not([type=hidden]):not([type=checkbox]),select,textarea', d || card)?.focus(); };
const press = (card, key) => key === 'e' ? edit(card) : key === 's' ? go(1) : $(`button[data-key="${key}"]`, card)?.click();
asks.addEventListener('click', e => {
  const b = e.target.closest?.('button[type=button][data-key]');
  if (b) press(b.closest('article'), b.dataset.key);
});
document.addEventListener('keydown', e => {
  let off = false; try { off = localStorage.getItem('evalrun.keys') === 'off'; } catch { /* nothing is kept */ }
  if (off || e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName) || $('dialog[open]')) return;
  if (e.key === 'j' || e.key === 'k') { e.preventDefault(); go(e.key === 'j' ? 1 : -1); return; }
  if (!/^[ades]$/.test(e.key) || e.repeat) return;
  e.preventDefault();
  if (!marked || e.key === 's') go(1); // the first key only marks
  else if (open(marked)) press(marked, e.key);
});

// ---- what others do meanwhile
const digest = card => $('input[name=fence]', card)?.value;
const shown = new Set($$('article.ask', asks).map(digest));
async function closed(card) {
  if (card.classList.contains('done') || waiting.has(card.dataset.trigger) || $('.outcome', card)) return;
  try {
    const r = await fetch('/triggers/' + card.dataset.trigger + '/answer', { headers: { Accept: 'application/json' } }), reply = await r.json();
    if (reply.outcome === 'late' && $('form', card) && !$('form', card).hidden) { card.classList.add('done'); say(card, reply.text, 'status', reply.payload); offer(); }
  } catch { /* it is asked again with the next change */ }
}
let now = { open: [], asked: [] };
function offer() { // says what can be seen by loading the page again
  // A question is new if no card has it. Of one that was answered here, others may go on to ask it.
  const fresh = now.asked.some(d => !shown.has(d)), rest = $$('article.ask.done', asks).some(c => now.asked.includes(digest(c)));
  if (!$('#more')) return;
  $('#more').hidden = !(fresh || rest) || (now.open.length > shown.size && !!$('.pager a'));
  $('#more a').textContent = fresh ? 'New questions have come: show them' : 'Other rollouts still ask what was answered: show them';
}
window.evalrunFollow('/inbox/live' + (location.pathname === '/inbox' ? location.search : ''), 0, (type, told) => {
  now = told;
  const open = new Set(now.open);
  if (now.complete) for (const card of $$('article.ask', asks)) if (!open.has(card.dataset.trigger)) closed(card);
  offer();
});
document.documentElement.dataset.inbox = 'ready';
})();
