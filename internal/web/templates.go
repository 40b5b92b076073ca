package web

import (
	"embed"
	"html/template"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/report"
)

//go:embed templates/*.html
var templateFiles embed.FS

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

// frame is the part around every page.
type frame struct {
	Title string
	// Section is the URL of the page's entry in the navigation.
	Section string
	// Live is the URL of the page's stream of changes, empty if nothing can change.
	Live string
	// Script is the name of the page's script besides app.js, empty if it has none.
	Script string
	// Downloads are the files of the page. CompareWith is a link to a comparison with what
	// it shows. A page has the button that copies its link if one of them is there.
	Downloads   []download
	CompareWith string
	// Repeat says how to run what the page shows once more; nil if that is not known.
	Repeat *again
	// Commands do the same at a terminal.
	Commands []string
	// OpenQuestions counts the rollouts that wait for an answer of a person.
	OpenQuestions int
}

func (f *frame) outer() *frame { return f }

// section is an entry of the navigation.
type section struct{ URL, Name string }

// Sections are the entries of the navigation.
func (frame) Sections() []section {
	return []section{{"/", "Runs"}, {"/inbox", "Inbox"}, {"/triggers", "Waiting"}, {"/compare", "Compare"}}
}

// download is a file of a page.
type download struct{ Name, URL string }
