package web_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// hasActing reports whether a page has a character that acts on its reader.
func hasActing(page string) bool {
	return strings.ContainsFunc(page, func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u200b' || r == '\ufeff')
	})
}

// Given a rollout whose agent has left files with names and contents made for browsers: none of them
// comes as a document, none sets a header, and none leads out of the folder.
func TestFilesMadeForBrowsersDoNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "account")
	one := s.all[0]
	dir := filepath.Join(s.store.Dir(), "runs", s.runID, "rollouts", one.RolloutID)
	names := []string{"x.svg", "x.html", "x.xhtml", "x.pdf", "x.js", "a\"b; filename=evil.exe\r\nSet-Cookie: a=b.txt", "\u202etxt.exe", "<img src=x onerror=alert(1)>.log", "..%2f..%2fstore.db", "nul\x7f\x1b]8;;x\x07.json"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := s.page(s.path(one))
	if strings.Contains(list, "<img") || hasActing(list) {
		t.Error("the name of a file acts on the page that lists it")
	}
	for _, name := range names {
		path := s.path(one) + "/files/" + url.PathEscape(name)
		raw := s.get(path + "?raw")
		h := raw.Header()
		kind := h.Get("Content-Type")
		if raw.Code != http.StatusOK || kind != "application/octet-stream" && kind != "text/plain; charset=utf-8" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment; filename") ||
			h.Get("Content-Security-Policy") != "sandbox; default-src 'none'" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" || h.Get("Set-Cookie") != "" {
			t.Errorf("%q: %d %v", name, raw.Code, h)
		}
		for key, values := range h {
			if hasActing(key+strings.Join(values, "")) || strings.ContainsAny(strings.Join(values, ""), "\r\n") {
				t.Errorf("%q: the header %s is %q", name, key, values)
			}
		}
		if page := s.page(path); strings.Contains(page, "<script>alert") || strings.Contains(page, "<img") || hasActing(page) {
			t.Errorf("%q acts on its page", name)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "dir")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("x.html", filepath.Join(dir, "inside")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"dir/hostname", "inside", "%00", "x.html%00.txt", "..%2f..%2f..%2f..%2fstore.db", "%2e%2e%2f%2e%2e%2fresults.json", "..%5cresults.json", "segments%2f..%2f..%2f..%2fresults.json", strings.Repeat("a", 5000), strings.Repeat("a/", 3000)} {
		for _, query := range []string{"", "?raw"} {
			if w := s.get(s.path(one) + "/files/" + path + query); w.Code != http.StatusNotFound && w.Code != http.StatusTemporaryRedirect {
				t.Errorf("%.60s%s: %d %s", path, query, w.Code, w.Body)
			}
		}
	}
	for _, offset := range []string{"-1", "-9223372036854775808", "9223372036854775807", "99999999999999999999", "NaN", "1e9", "0x10", "%00", ""} {
		if w := s.get(s.path(one) + "/files/x.html?offset=" + offset); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "of 71") {
			t.Errorf("offset %s: %d", offset, w.Code)
		}
	}
	for _, query := range []string{"step=-5", "step=NaN", "step=99999999999999999999", "row=-1", "row=9223372036854775807", "kind=%3Cscript%3E", "from=%25zz", "from=%ff%fe", "from=" + strings.Repeat("a", 5000)} {
		if w := s.get(s.path(one) + "?" + query); w.Code != http.StatusOK || hasActing(w.Body.String()) || strings.Contains(w.Body.String(), "<script>a") {
			t.Errorf("%.40s: %d", query, w.Code)
		}
	}
	for _, path := range []string{"/runs/" + strings.Repeat("a", 50_000), "/runs/" + s.runID + "/rollouts/" + strings.Repeat("a", 50_000), "/runs/" + s.runID + "/rollouts/" + one.RolloutID[:8], "/runs/" + s.runID + "/e/..%2f..%2f/x/1", "/triggers/%2e%2e%2fx/answer"} {
		if w := s.get(path); w.Code != http.StatusNotFound {
			t.Errorf("%.60s: %d", path, w.Code)
		}
	}
}

// An answer is refused that no page of this server has sent, that is of another question, or that is
// too large; and nothing is delivered.
func TestForgedAnswersAreRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	asked, other := d.trigger("a"), d.trigger("form")
	path := "/triggers/" + asked.TriggerID + "/answer"
	_, page := d.do("GET", "/runs/"+d.runID+"/rollouts/"+asked.RolloutID, nil)
	form := d.form(page, asked.TriggerID, "verb", "approve", "confirm", "1")
	for name, header := range map[string][]string{"the origin null": {"Origin", "null"}, "a name that begins alike": {"Origin", d.URL + ".evil.example"}, "another port": {"Origin", "http://127.0.0.1:1"},
		"the same site": {"Sec-Fetch-Site", "same-site"}, "no site": {"Sec-Fetch-Site", "none"}, "no origin": {"Origin", ""}, "no URL": {"Origin", "http://%zz"}} {
		if status, body := d.do("POST", path, form, header...); status != http.StatusForbidden || !strings.Contains(body, "Nothing was done.") {
			t.Error(name, status, body)
		}
	}
	form.Del("confirm")
	if status, body := d.do("POST", path, form, "Origin", "null", "Sec-Fetch-Site", "same-origin"); status != http.StatusOK || !strings.Contains(body, "Send this answer?") {
		t.Error("a form of our own page, as browsers send it", status, body)
	}
	form.Set("confirm", "1")
	_, page = d.do("GET", "/runs/"+d.runID+"/rollouts/"+other.RolloutID, nil)
	of := d.form(page, other.TriggerID)
	for name, values := range map[string]url.Values{"the fence of another question": {"fence": of["fence"]}, "no fence": {"fence": {""}}, "no token": {"csrf": {""}}, "nothing": {"fence": {""}, "csrf": {""}, "verb": {""}}} {
		v := url.Values{}
		for key := range form {
			v.Set(key, form.Get(key))
		}
		for key := range values {
			v.Set(key, values.Get(key))
		}
		if status, body := d.do("POST", path, v); status != http.StatusUnprocessableEntity {
			t.Error(name, status, body)
		}
	}
	form.Set("data", `"`+strings.Repeat("x", 10<<20)+`"`)
	if status, body := d.do("POST", path, form); status != http.StatusRequestEntityTooLarge || !strings.Contains(body, "larger than 8 MiB") {
		t.Error("10 MiB", status, body)
	}
	form.Set("data", "")
	d.do("GET", path+"?"+form.Encode(), nil) // which asks for nothing more than what has become of it
	if !d.trigger("a").Open || !d.trigger("form").Open {
		t.Error("a forged answer was delivered")
	}
}
