package serve_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/serve"
	"github.com/evalrun/evalrun/runner"
)

// newBrowser is a client that keeps cookies, as a person's.
func newBrowser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// visit asks for a page, or sends a form as a page of the server does.
func (w *world) visit(browser *http.Client, path string, form url.Values) answer {
	w.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequest(method, w.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		w.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", w.base)
	}
	a, err := browser.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	page, err := io.ReadAll(a.Body)
	if err != nil {
		w.Fatal(err)
	}
	return answer{a, string(page)}
}

// typedToken is a token that the server may send: to the browser in which it was typed, as its cookie.
func (w *world) typedToken(scopes ...access.Scope) (token, id string) {
	w.Helper()
	token, made, err := access.New(w.Context(), w.Store(), "typed", scopes, time.Time{})
	if err != nil {
		w.Fatal(err)
	}
	return token, made.ID
}

func TestALinkWorksOnceAndBecomesACookie(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := newWorld(t, func(o *serve.Options) { o.Person, o.Now = "ada", func() time.Time { return now } })
	browser := newBrowser(t)
	if a := w.visit(browser, "/", nil); a.StatusCode != http.StatusUnauthorized || !strings.Contains(a.body, `action="/login"`) {
		t.Fatal("without a cookie: ", a.StatusCode, a.body)
	}
	link := w.server.Link("/inbox")
	a := w.visit(browser, link, nil)
	cookies := a.Cookies()
	if a.StatusCode != http.StatusOK || len(cookies) != 1 || !strings.Contains(a.body, `href="/inbox"`) {
		t.Fatal(a.StatusCode, cookies, a.body)
	}
	if c := cookies[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.Secure || c.Expires.Before(now.Add(11*time.Hour)) {
		t.Errorf("the cookie is %+v", c)
	}
	if a.Header.Get("Refresh") != "0; url=/inbox" || a.Header.Get("Referrer-Policy") != "no-referrer" || a.Header.Get("Cache-Control") != "no-store" {
		t.Error(a.Header)
	}
	if a := w.visit(browser, "/", nil); a.StatusCode != http.StatusOK {
		t.Error("with the cookie: ", a.StatusCode)
	}
	// W11: a link that was used leads a browser on that is signed in.
	if a := w.visit(browser, link, nil); a.StatusCode != http.StatusOK || len(a.Cookies()) > 0 || a.Header.Get("Refresh") != "0; url=/inbox" {
		t.Error("a used link of a browser that is signed in: ", a.StatusCode, a.Cookies(), a.Header)
	}
	stranger := newBrowser(t)
	for _, path := range []string{link, "/open?key=none", "/open"} {
		if a := w.visit(stranger, path, nil); a.StatusCode != http.StatusUnauthorized || len(a.Cookies()) > 0 || !strings.Contains(a.body, "a link works once") {
			t.Error(path, a.StatusCode, a.Cookies(), a.body)
		}
	}
	now = now.Add(13 * time.Hour)
	if a := w.visit(browser, "/", nil); a.StatusCode != http.StatusUnauthorized {
		t.Error("a cookie that is too old: ", a.StatusCode)
	}
}

func TestALinkLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, to := range []string{"https://example.org/", "//example.org", `/\example.org`, "/x;url=https://example.org", "javascript:alert(1)", ""} {
		link, err := url.Parse(w.server.Link("/"))
		if err != nil {
			t.Fatal(err)
		}
		q := link.Query()
		q.Set("to", to)
		link.RawQuery = q.Encode()
		if a := w.visit(newBrowser(t), link.String(), nil); a.Header.Get("Refresh") != "0; url=/" || strings.Contains(a.body, "example.org") {
			t.Errorf("to %q it leads to %q", to, a.Header.Get("Refresh"))
		}
	}
}

func TestATokenIsTypedAndLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	browser := newBrowser(t)
	for name, token := range map[string]string{"no token": "", "no such token": "evr_aaaaaaaa_bbbb", "one that may not look": w.newToken(access.Deliver)} {
		if a := w.visit(browser, "/login", url.Values{"token": {token}}); a.StatusCode != http.StatusUnauthorized || len(a.Cookies()) > 0 || !strings.Contains(a.body, `action="/login"`) {
			t.Error(name, a.StatusCode, a.body)
		}
	}
	token, _ := w.typedToken(access.Read)
	a := w.visit(browser, "/login", url.Values{"token": {" " + token + "\n"}})
	if a.StatusCode != http.StatusOK || len(a.Cookies()) != 1 || !a.Cookies()[0].HttpOnly || a.Cookies()[0].SameSite != http.SameSiteStrictMode {
		t.Fatal(a.StatusCode, a.Cookies())
	}
	if a := w.visit(browser, "/", nil); a.StatusCode != http.StatusOK {
		t.Fatal(a.StatusCode)
	}
	if a := w.visit(browser, "/v1/runs", nil); a.StatusCode != http.StatusUnauthorized {
		t.Error("a cookie opens what is no page: ", a.StatusCode)
	}
	if a := w.visit(browser, "/logout", url.Values{}); len(a.Cookies()) != 1 || a.Cookies()[0].MaxAge >= 0 {
		t.Error(a.Cookies())
	}
	if a := w.visit(browser, "/", nil); a.StatusCode != http.StatusUnauthorized {
		t.Error("after leaving: ", a.StatusCode)
	}
	if a := w.send("GET", "/v1/runs", "", "Authorization", "Bearer "+token); a.StatusCode != http.StatusOK {
		t.Error("leaving has revoked the token: ", a.StatusCode)
	}
}

func TestTheCookieOfARevokedTokenOpensNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	browser := newBrowser(t)
	token, id := w.typedToken(access.Read)
	w.visit(browser, "/login", url.Values{"token": {token}})
	if a := w.visit(browser, "/", nil); a.StatusCode != http.StatusOK {
		t.Fatal(a.StatusCode)
	}
	if err := w.Store().RevokeAccessToken(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if a := w.visit(browser, "/", nil); a.StatusCode != http.StatusUnauthorized || !strings.Contains(a.body, `action="/login"`) {
		t.Error(a.StatusCode, a.body)
	}
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// Who has come by a link is recorded by name with their answer, in the store and in the audit log.
func TestWhoAnswersIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *serve.Options) { o.Person = "ada" })
	w.execute()
	id := w.start("person").RunID
	w.reaches(id, "suspended")
	var trigger runner.Trigger
	if err := w.Triggers(t.Context(), id, false, func(one runner.Trigger) error { trigger = one; return nil }); err != nil {
		t.Fatal(err)
	}
	browser := newBrowser(t)
	w.visit(browser, w.server.Link("/inbox"), nil)
	page := w.visit(browser, "/inbox", nil).body
	if !strings.Contains(page, `id="n-asked">1<`) {
		t.Error("the head does not count the question")
	}
	_, form, _ := strings.Cut(page, `action="/triggers/`+trigger.TriggerID+`/answer"`)
	form, _, _ = strings.Cut(form, "</form>")
	v := url.Values{"verb": {"approve"}, "confirm": {"1"}}
	for _, m := range hidden.FindAllStringSubmatch(form, -1) {
		v.Set(m[1], m[2])
	}
	if a := w.visit(browser, "/triggers/"+trigger.TriggerID+"/answer", v); a.StatusCode != http.StatusOK || !strings.Contains(a.body, "Approved.") {
		t.Fatal(a.StatusCode, a.body)
	}
	w.reaches(id, "successful")
	found, err := w.Trigger(t.Context(), trigger.TriggerID)
	if err != nil || len(found.Deliveries) != 1 || found.Deliveries[0].Person != "ada" || found.Deliveries[0].By != "page" {
		t.Errorf("%+v %v", found.Deliveries, err)
	}
	if a := w.visit(browser, "/runs/"+id+"/rollouts/"+trigger.RolloutID, nil); a.StatusCode != http.StatusOK || !strings.Contains(a.body, `by <span class="u">ada (page)</span>`) || !strings.Contains(a.body, `id="n-asked" hidden>0<`) {
		t.Error("the page of the rollout does not say who has answered")
	}
	if log := w.audit.String(); !strings.Contains(log, `"name":"ada"`) || !strings.Contains(log, trigger.TriggerID) {
		t.Error(log)
	}
}
