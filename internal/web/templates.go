package web

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/wait"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// templates are the pages, a file each, and the parts that they share in layout.html. No function
// here returns markup: html/template escapes everything. They are read when a page is first shown,
// because every command links them and few show a page.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"visible": visible, "plain": plain, "score": formatScore, "pValue": report.PValue, "duration": formatDuration,
		"ms": formatMs, "counted": counted, "shortID": shortID, "kind": kindOf, "asset": assetURL, "parts": valueParts,
		"deliverer": deliverer, "utc": func(t time.Time) time.Time { return t.UTC() },
	}).ParseFS(templateFiles, "templates/*.html"))
})

// frame is what every page has around it.
type frame struct {
	Title string
	// Section is the URL of the entry of the navigation that the page belongs to.
	Section string
	// Live is the URL of the page's stream of changes, empty if nothing can change.
	Live string
	// Script is the name of the script that the page has besides app.js, empty if it has none.
	Script string
	// Downloads are the files that one can have of the page, CompareWith leads to a comparison with what
	// it shows. A page has the button that copies its link if one of them is there.
	Downloads   []download
	CompareWith string
	// Repeat runs what the page shows once more; nil if nobody knows how.
	Repeat *again
	// Commands do the same at a terminal.
	Commands []string
	// OpenQuestions counts the rollouts that wait for an answer of a person.
	OpenQuestions int
}

func (f *frame) outer() *frame { return f }

// present answers with a page of the server, whose frame it completes.
func (o Options) present(w http.ResponseWriter, r *http.Request, status int, name string, page interface{ outer() *frame }) error {
	n, err := o.openQuestions(r.Context())
	if err != nil {
		return err
	}
	page.outer().OpenQuestions = n
	return show(w, status, name, page)
}

// openQuestions counts the rollouts that wait for an answer of a person.
func (o Options) openQuestions(ctx context.Context) (int, error) {
	return o.Service.Store().CountOpen(ctx, string(wait.TypeTask), wait.SourceExternal)
}

// section is an entry of the navigation.
type section struct{ URL, Name string }

// Sections are the entries of the navigation.
func (frame) Sections() []section {
	return []section{{"/", "Runs"}, {"/inbox", "Inbox"}, {"/triggers", "Waiting"}, {"/compare", "Compare"}}
}

// assets are the style and the script with their digests, which are part of their URLs.
var assets = sync.OnceValue(func() map[string]asset {
	out := map[string]asset{}
	for _, name := range []string{"style.css", "app.js", "inbox.js", "report.js"} {
		data, err := staticFiles.ReadFile("static/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		sum := sha256.Sum256(data)
		out[name] = asset{data, hex.EncodeToString(sum[:6])}
	}
	return out
})

type asset struct {
	data   []byte
	digest string
}

func assetURL(name string) string { return "/static/" + name + "?" + assets()[name].digest }

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
	h.Set("Content-Type", map[string]string{"style.css": "text/css; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "inbox.js": "text/javascript; charset=utf-8", "report.js": "text/javascript; charset=utf-8"}[name])
	_, _ = w.Write(one.data)
}
