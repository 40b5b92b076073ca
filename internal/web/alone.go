package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/eval/compare"
)

// WriteComparison writes a comparison as one HTML file that needs nothing else: no server, no
// network, no other file. The same comparison gives the same bytes.
func WriteComparison(w io.Writer, doc *compare.Document) error {
	page := &comparePage{frame: frame{Title: "Compare"}, Offline: true}
	page.show(doc)
	body, err := bodyOf("compare.html", page)
	if err != nil {
		return err
	}
	script := "\n" + string(assets()["app.js"].data) + "\n"
	out := &reportWriter{w: w}
	out.body(page.Title, alone(body, ""), script)
	out.end(script)
	return out.err
}

// reportWriter writes the parts of a report, until an error.
type reportWriter struct {
	w   io.Writer
	err error
}

func (w *reportWriter) write(text string) {
	if w.err == nil {
		_, w.err = io.WriteString(w.w, text)
	}
}

// body writes a file up to the end of its body. script is what end will write.
func (w *reportWriter) body(title, body, script string) {
	style := string(assets()["style.css"].data)
	policy := fmt.Sprintf(
		"default-src 'none'; style-src '%s'; script-src '%s'; img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
		hashOf(style), hashOf(script))
	w.write(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta http-equiv="Content-Security-Policy" content="` +
		policy +
		`"><meta name="referrer" content="no-referrer"><link rel="icon" href="data:,"><title>` +
		html.EscapeString(plain(title)) + " – evalrun</title><style>" + style +
		"</style></head><body class=\"file\">\n" + body)
}

func (w *reportWriter) end(script string) {
	w.write("<script>" + script + "</script></body></html>\n")
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// bodyOf makes the body of a page of the server.
func bodyOf(name string, page any) (string, error) {
	var made bytes.Buffer
	if err := templates().Execute(&made, name, page); err != nil {
		return "", err
	}
	const first = `<a class="skip"`
	_, body, ok := strings.Cut(made.String(), first)
	body, _, ok2 := strings.Cut(body, "</body>")
	if !ok || !ok2 {
		return "", fmt.Errorf("the page %s has not the parts of one", name)
	}
	return first + body, nil
}

var (
	serverLink  = regexp.MustCompile(` href="/[^"]*"`)
	navigation  = regexp.MustCompile(`(?s)<nav .*?</nav>`)
	failureKeys = regexp.MustCompile(`<dt><kbd>n</kbd>.*?</dd>`)
	crumbs      = regexp.MustCompile(`(?s)<p class="crumbs">.*?</p>`)
)

// alone removes the links to the server from a body, and puts a note before its content.
func alone(body, note string) string {
	body = navigation.ReplaceAllString(body, `<span class="note" role="status">report, not live</span>`)
	body = serverLink.ReplaceAllString(crumbs.ReplaceAllString(body, ""), "")
	body = failureKeys.ReplaceAllString(body, "")
	if note != "" {
		note = `<p class="note">` + html.EscapeString(note) + `</p>`
	}
	return strings.Replace(body, `<main id="main" tabindex="-1">`, `<main id="main" tabindex="-1">`+note, 1)
}
