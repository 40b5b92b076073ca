package browser

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

const hostile = `</title><script>window.pwned=1</script><img src=x onerror="window.pwned=1">\u202e\u001b[31mred{{.Secret}}`

const approvals = `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "agent.sh"]}, "evaluators": [],
 "evaluations": [
  {"id": "pay", "name": "Pay", "inputs": {"title": "Pay 12?", "data": {"amount": 12}}, "evaluationCriterias": {}},
  {"id": "keep", "name": "Keep", "inputs": {"title": "Keep it?", "data": {"amount": 13}}, "evaluationCriterias": {}},
  {"id": "hostile", "name": "HOSTILE", "inputs": {"title": "HOSTILE", "app_name": "HOSTILE", "data": {"HOSTILE": "HOSTILE", "deep": ["HOSTILE"]}}, "evaluationCriterias": {}},
  {"id": "form", "name": "Form", "inputs": {"title": "Which room?", "data": {"requestedSchema": {"type": "object", "required": ["floor"],
    "properties": {"floor": {"type": "integer", "maximum": 9}, "HOSTILE": {"type": "string", "title": "HOSTILE", "description": "HOSTILE", "enum": ["HOSTILE", "loud"]}}}}}, "evaluationCriterias": {}}]}`

const agent = `read -r line
case $line in
*'"resume":null'*) printf '%s\n' "$(printf '%s' "$line" | sed 's/.*"input":{/{"__interrupt__":[{"id":"q","value":{"type":"CreateTask",/; s/},"resume".*/}}]}/')" ;;
*) printf '%s\n' "$(printf '%s' "$line" | sed 's/.*"resume"://; s/,"deliveries".*//')" ;;
esac
`

// desk is a run that waits for people, and a server that goes on with it.
func desk(t *testing.T) (w *world, links []string) {
	t.Helper()
	quoted, err := json.Marshal(strings.NewReplacer(`\u202e`, "\u202e", `\u001b`, "\x1b").Replace(hostile))
	if err != nil {
		t.Fatal(err)
	}
	w = newWorld(t, map[string]string{"set.json": strings.ReplaceAll(approvals, "HOSTILE", strings.Trim(string(quoted), `"`)), "agent.sh": agent})
	w.evalrun(75, "run", "-q", "--run-id", "r", "set.json")
	links, _ = w.serve("serve", "--listen", "127.0.0.1:0")
	return w, links
}

// open opens a page by a link that works once.
func (b *browser) open(link, at string) {
	b.Helper()
	b.do(chromedp.Navigate(link+"&"), chromedp.WaitVisible("main h1"))
	b.until(`location.pathname !== '/open'`)
	u, err := url.Parse(link)
	if err != nil {
		b.Fatal(err)
	}
	b.do(chromedp.Navigate("http://"+u.Host+at), chromedp.WaitVisible("main h1"))
}

// card is the selector of a question's card, by what is asked.
func (b *browser) card(title string) (selector string) {
	b.Helper()
	b.do(chromedp.Evaluate(`(() => { const c = [...document.querySelectorAll('article.ask')].find(c => c.querySelector('h2').innerText.includes(`+quoteJS(title)+`)); return c ? '#' + CSS.escape(c.id) : ''; })()`, &selector))
	if selector == "" {
		b.Fatalf("nobody asks %q:\n%s", title, b.text("main"))
	}
	return selector
}

func quoteJS(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err) // a text is JSON
	}
	return string(data)
}

func TestAQuestionIsAnsweredAndItsRolloutFinishes(t *testing.T) {
	w, links := desk(t)
	b := newBrowser(t)
	b.open(links[0], "/inbox")
	b.until(`document.documentElement.dataset.inbox === 'ready'`)

	pay := b.card("Pay 12?")
	b.do(chromedp.Click(pay + " summary"))
	b.do(chromedp.SendKeys(pay+" textarea", `{"limit":10`))
	b.until(`document.querySelector('` + pay + ` .preview').innerText.startsWith('Data is not JSON')`)
	b.do(chromedp.SendKeys(pay+" textarea", `}`))
	b.until(`document.querySelector('` + pay + ` .preview').innerText === '{"action":"approve","approved":true,"data":{"limit":10}}'`)
	b.do(chromedp.Click(pay + " button.primary"))
	b.until(`document.querySelector('` + pay + ` .outcome')?.innerText.includes('Approve is sent in')`)
	b.do(chromedp.Click(pay + " .outcome button")) // undo
	b.until(`!document.querySelector('` + pay + ` form').hidden && !document.querySelector('` + pay + ` .outcome')`)
	b.do(chromedp.Click(pay + " button.primary"))
	b.until(`document.querySelector('` + pay + ` .outcome')?.innerText.includes('Approved.')`)
	b.until(`true`)
	w.until(`.evaluationSetResults[0].agentExecutionOutput.result.output`, `{"q":{"action":"approve","approved":true,"data":{"limit":10}}}`)

	form := b.card("Which room?")
	b.do(chromedp.SendKeys(form+` input[name="f.0"]`, "12"), chromedp.Click(form+" button.primary"))
	b.until(`document.querySelector('` + form + ` .said').innerText.includes('The answer does not fit') && !document.querySelector('` + form + ` form').hidden`)
	b.until(`document.querySelector('` + form + ` input[name="f.0"]').value === '12'`)
	b.forget("status of 422") // the browser itself notes that the answer was refused

	b.screenshot("inbox")
	var pwned bool
	b.do(chromedp.Evaluate(`!!window.pwned || !!document.querySelector('main img, main script') || /[\u001b\u202e]/.test(document.documentElement.outerHTML)`, &pwned))
	if pwned {
		t.Error("what an agent asks acts on the page")
	}
}

// A key acts on the card that is marked, and on no other: the first one marks the first card, and after an
// answer the next is the one that follows, even if keys come fast.
func TestKeysAnswerOnlyTheMarkedQuestion(t *testing.T) {
	_, links := desk(t)
	b := newBrowser(t)
	b.open(links[0], "/inbox")
	const marked = `[...document.querySelectorAll('article.ask')].map(c => c.classList.contains('cur') ? 'X' : c.querySelector('.outcome') ? 'o' : '-').join('')`
	is := func(want string) {
		t.Helper()
		got := ""
		b.do(chromedp.Evaluate(marked, &got))
		if got != want {
			t.Errorf("marked %s, not %s", got, want)
		}
	}
	outcomes := func(want int) {
		t.Helper()
		got := 0
		b.do(chromedp.Evaluate(`document.querySelectorAll('.outcome').length`, &got))
		if got != want {
			t.Errorf("%d are answered, not %d", got, want)
		}
	}
	for _, first := range []string{"j", "s", "k", "a", "d", "e"} {
		b.do(chromedp.Reload())
		b.until(`document.documentElement.dataset.inbox === 'ready'`)
		is("----")
		b.do(chromedp.KeyEvent(first))
		is("X---")
		outcomes(0)
	}
	b.do(chromedp.KeyEvent("a"), chromedp.KeyEvent("a"), chromedp.KeyEvent("d")) // the focus is on Undo
	is("X---")
	outcomes(1)
	b.do(chromedp.KeyEvent("j"))
	is("oX--")
	b.do(chromedp.KeyEvent("s"))
	is("o-X-")
	b.do(chromedp.KeyEvent("d"), chromedp.KeyEvent("k"))
	is("oXo-")
	b.do(chromedp.KeyEvent("k")) // nothing before it is open
	is("oXo-")
	outcomes(2)
	b.do(chromedp.Focus("article.ask:last-child button.deny"))
	is("o-oX")
	b.do(chromedp.KeyEvent("d"))
	outcomes(3)
	is("o-oX")
}

// What the page says that a button sends is what is stored, to the byte: no number is rounded, no member
// moved, and deny is not approve.
func TestThePreviewIsWhatIsSent(t *testing.T) {
	const data = `{"id": 12345678901234567890, "r": 1.0, "b": 1, "2": 3, "1": 4, "t": "<é>"}`
	w, links := desk(t)
	b := newBrowser(t)
	b.open(links[0], "/inbox")
	b.until(`document.documentElement.dataset.inbox === 'ready'`)
	for title, c := range map[string]struct{ button, said, want string }{
		"Pay 12?":  {"button.deny", "Denied.", `{"action":"deny","approved":false,"reason":"<é> \"no\"","data":` + data + `}`},
		"Keep it?": {"button.primary", "Approved.", `{"action":"approve","approved":true,"reason":"<é> \"no\"","data":` + data + `}`},
	} {
		card := b.card(title)
		b.until(`document.querySelector('` + card + ` .preview[data-verb=deny]').textContent === '{"action":"deny","approved":false}'`)
		b.do(chromedp.Click(card+" summary"), chromedp.SendKeys(card+" [name=reason]", ` <é> "no" `), chromedp.SendKeys(card+" textarea", data))
		b.until(`[...document.querySelectorAll('` + card + ` .preview')].some(p => p.textContent === ` + quoteJS(c.want) + ` && p.checkVisibility())`)
		b.do(chromedp.Click(card + " " + c.button))
		b.until(`document.querySelector('` + card + ` .outcome')?.innerText.includes('` + c.said + `')`)
		w.untilStored(c.want)
	}
}

// untilStored waits until a document is in the results of the run, number for number and in its order.
func (w *world) untilStored(want string) {
	w.Helper()
	var results, wanted bytes.Buffer
	if err := json.Compact(&wanted, []byte(want)); err != nil {
		w.Fatal(err)
	}
	for range 600 {
		results.Reset()
		if err := json.Compact(&results, []byte(w.evalrun(0, "show", "--json", "r"))); err != nil {
			w.Fatal(err)
		}
		if bytes.Contains(results.Bytes(), wanted.Bytes()) {
			return
		}
	}
	w.Fatalf("%s is not in %s", wanted.String(), results.String())
}

// until waits until the results of the run have a value, as jq writes it.
func (w *world) until(path, want string) {
	w.Helper()
	got := ""
	for range 600 {
		got = w.evalrun(0, "show", "--json", "r")
		jq := exec.Command("jq", "-c", path)
		jq.Stdin = strings.NewReader(got)
		out, err := jq.Output()
		if err != nil {
			w.Fatal(err)
		}
		if got = strings.TrimSpace(string(out)); got == want {
			return
		}
	}
	w.Fatalf("%s is %s, not %s", path, got, want)
}

func TestTwoBrowsersAnswerTheSameQuestion(t *testing.T) {
	w, links := desk(t)
	one, other := newBrowser(t), newBrowser(t)
	one.open(links[0], "/inbox")
	// The second one has a token.
	token := strings.TrimSpace(w.evalrun(0, "token", "new", "--name", "bob", "--scope", "read,deliver"))
	u, err := url.Parse(links[0])
	if err != nil {
		t.Fatal(err)
	}
	other.do(chromedp.Navigate("http://"+u.Host+"/inbox"), chromedp.WaitVisible("#token"), chromedp.SendKeys("#token", token), chromedp.Submit("#token"))
	other.do(chromedp.WaitVisible(`a[href="/"][aria-current="page"]`))
	other.forget("status of 401") // the page that asks for a token
	other.do(chromedp.Navigate("http://" + u.Host + "/inbox"))
	for _, b := range []*browser{one, other} {
		b.until(`document.documentElement.dataset.inbox === 'ready'`)
	}
	keep := one.card("Keep it?")
	// Both answer within the five seconds: the one who was first wins, and the other is told.
	other.do(chromedp.Click(keep + " button.deny"))
	other.until(`document.querySelector('` + keep + ` .outcome')?.innerText.includes('Deny is sent in')`)
	one.do(chromedp.Click(keep + " button.primary"))
	other.until(`document.querySelector('` + keep + ` .outcome')?.innerText.includes('Denied.')`)
	one.until(`document.querySelector('` + keep + ` .outcome')?.innerText.includes('bob (page) was faster')`)
	one.until(`document.querySelector('` + keep + ` .outcome pre').innerText.includes('"deny"')`)
	one.forget("status of 409")
	w.until(`.evaluationSetResults[1].resumedBy[0].answers[0].person`, `"bob"`)

	// What is answered elsewhere is said without loading the page again.
	pay := one.card("Pay 12?")
	w.evalrun(0, "approve", strings.TrimPrefix(strings.ReplaceAll(pay, `\`, ""), "#q-"), "--by", "eve", "-q")
	for _, b := range []*browser{one, other} {
		b.until(`document.querySelector('` + pay + `').innerText.includes('Answered by eve (approve), at ')`)
		if text := b.text(pay); strings.Contains(text, "faster") || strings.Contains(text, "Your answer") {
			t.Errorf("who has entered nothing is told %s", text)
		}
	}
}

// Of a question that several rollouts ask, the answer of one elsewhere makes no new question.
func TestWhatIsAskedAgainIsNotNew(t *testing.T) {
	const same = `{"id": "ID", "name": "N", "inputs": {"title": "TITLE", "data": {"n": 1}}, "evaluationCriterias": {}}`
	set := func(questions ...string) string {
		for i, title := range questions {
			questions[i] = strings.NewReplacer("ID", "e"+string(rune('a'+i)), "TITLE", title).Replace(same)
		}
		return `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "agent.sh"]}, "evaluators": [], "evaluations": [` + strings.Join(questions, ",") + `]}`
	}
	w := newWorld(t, map[string]string{"set.json": set("Same?", "Same?", "Same?"), "other.json": set("Other?"), "agent.sh": agent})
	w.evalrun(75, "run", "-q", "--run-id", "r", "set.json")
	links, _ := w.serve("serve", "--listen", "127.0.0.1:0")
	b := newBrowser(t)
	b.open(links[0], "/inbox")
	b.until(`document.documentElement.dataset.inbox === 'ready'`)
	card := b.card("Same?")
	w.evalrun(0, "approve", strings.TrimPrefix(strings.ReplaceAll(card, `\`, ""), "#q-"), "--by", "eve", "-q")
	b.until(`document.querySelector('` + card + `').innerText.includes('Answered by eve (approve), at ')`)
	b.until(`document.querySelector('#more').checkVisibility() && document.querySelector('#more').innerText === 'Other rollouts still ask what was answered: show them'`)
	w.evalrun(75, "run", "-q", "--run-id", "other", "other.json") // the page hears of this one, too
	b.until(`document.querySelector('#more').checkVisibility() && document.querySelector('#more').innerText.includes('New questions have come')`)
}

// forget leaves out what the browser itself has noted of a failed request that was wanted.
func (b *browser) forget(failure string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []string
	for _, text := range b.bad {
		if !strings.Contains(text, failure) {
			left = append(left, text)
		}
	}
	b.bad = left
}
