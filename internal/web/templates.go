package web

import (
	"embed"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/markup"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

//go:embed templates/*.html
var templateFiles embed.FS

// templates are the pages, a file each, and the parts that they share in layout.html. No function
// here returns markup: everything is escaped. They are read when a page is first shown, because
// every command links them and few show a page.
var templates = sync.OnceValue(func() *markup.Templates {
	return markup.New(templateFiles, "templates/*.html", functions(), methods())
})

// functions are what templates may call by name.
func functions() map[string]any {
	return map[string]any{
		"visible": visible, "plain": plain, "score": formatScore, "pValue": report.PValue, "duration": formatDuration,
		"ms": formatMs, "counted": counted, "shortID": shortID, "kind": kindOf, "asset": assetURL, "sections": sections,
		"deliverer": deliverer, "utc": func(t time.Time) time.Time { return t.UTC() },
	}
}

// methods are the methods that templates may call.
func methods() map[string][]any {
	return map[string][]any{
		"Asking": {(*inboxPage).Asking}, "At": {interval.At, compareRow.At}, "By": {rolloutRow.By},
		"Changed": {comparedItem.Changed}, "Checked": {(*runPage).Checked}, "Class": {comparedItem.Class},
		"Figure": {compareRow.Figure}, "FlakyN": {(*runPage).FlakyN}, "For": {stretch.For},
		"Format": {time.Time.Format}, "IsZero": {time.Time.IsZero}, "Label": {interval.Label},
		"Limited": {(*runPage).Limited}, "Lines": {again.Lines}, "Milliseconds": {time.Duration.Milliseconds},
		"More": {triggerGroup.More}, "MoreA": {comparedItem.MoreA}, "MoreB": {comparedItem.MoreB},
		"P": {compareRow.P}, "Polled": {sourceRow.Polled}, "Rollouts": {asking.Rollouts},
		"Says": {cause.Says}, "Signed": {compareRow.Signed, comparedItem.Signed}, "Spans": {textPart.Spans},
		"Status": {filter.Status}, "String": {(*schemas.TaskSource).String, (*schemas.RefusedConnections).String},
		"Summary": {node.Summary}, "Text": {interval.Text}, "Undecided": {(*field).Undecided},
		"UnixMicro": {time.Time.UnixMicro}, "Unpaired": {(*comparePage).Unpaired},
		"Until": {(*triggersPage).Until}, "Value": {compareRow.Value, comparedItem.Value},
	}
}

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

// sections are the entries of the navigation.
func sections() []section {
	return []section{{"/", "Runs"}, {"/inbox", "Inbox"}, {"/triggers", "Waiting"}, {"/compare", "Compare"}}
}

// download is a file of a page.
type download struct{ Name, URL string }
