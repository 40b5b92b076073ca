package web

import (
	"bytes"
	"context"
	"mime"
	"net/http"
	"strings"
)

// Refuse answers with a page that says why there is nothing else to see.
func Refuse(w http.ResponseWriter, status int, text string) {
	Protect(w.Header())
	_ = show(w, status, "refused.html", refusedPage{frame: frame{Title: http.StatusText(status)},
		Status: status, Text: text, Login: status == http.StatusUnauthorized})
}

// Opened answers with a page that leads on to another one.
func Opened(w http.ResponseWriter, to string) {
	Protect(w.Header())
	_ = show(w, http.StatusOK, "opened.html", openedPage{frame{Title: "Opened"}, to})
}

type openedPage struct {
	frame
	To string
}

type refusedPage struct {
	frame
	Status int
	Text   string
	// Login says that a token may help.
	Login bool
}

// show answers with a page. It makes the whole page before it sends the first byte, so that an
// error does not leave half of one.
func show(w http.ResponseWriter, status int, name string, page any) error {
	var out bytes.Buffer
	if err := templates().Execute(&out, name, page); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // a client that is gone misses the answer
	return nil
}

// present answers with a page of the server, whose frame it completes.
func (o Options) present(w http.ResponseWriter, r *http.Request, status int,
	name string, page interface{ outer() *frame }) error {
	n, err := o.openQuestions(r.Context())
	if err != nil {
		return err
	}
	page.outer().OpenQuestions = n
	return show(w, status, name, page)
}

// openQuestions counts the rollouts that wait for an answer of a person.
func (o Options) openQuestions(ctx context.Context) (int, error) {
	return o.Service.OpenQuestions(ctx)
}

// attachment sends a file that a browser saves and does not show.
func attachment(w http.ResponseWriter, name, typ string, data []byte) {
	h := w.Header()
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Content-Type", typ)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{
		"filename": strings.ToValidUTF8(plain(name), "_"),
	}))
	_, _ = w.Write(data) // a client that is gone misses the answer
}

// static answers with the style or the script.
func static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	one, ok := assets()[name]
	if !ok {
		Refuse(w, http.StatusNotFound, "there is nothing at this path")
		return
	}
	h := w.Header()
	Protect(h)
	h.Set("Cache-Control", "private, max-age=31536000, immutable") // another version has another URL
	h.Set("Content-Type", map[string]string{
		"style.css": "text/css; charset=utf-8", "app.js": "text/javascript; charset=utf-8",
		"inbox.js": "text/javascript; charset=utf-8", "report.js": "text/javascript; charset=utf-8",
	}[name])
	_, _ = w.Write(one.data)
}
