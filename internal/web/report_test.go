package web_test

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/web"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// report writes the report of the desk's run.
func (d *desk) report(o web.ReportOptions) string {
	d.Helper()
	return d.reportOf(d.runID, o)
}

// reportOf writes the report of a run.
func (d *desk) reportOf(run string, o web.ReportOptions) string {
	d.Helper()
	var out bytes.Buffer
	if err := d.store.Report(d.Context(), run, runner.Variables{}, func(r *runner.Report) error { return web.WriteReport(&out, r, o) }); err != nil {
		d.Fatal(err)
	}
	return out.String()
}

// unpack opens a block of data of a report.
func unpack(t testing.TB, report, id string, into any) {
	t.Helper()
	_, text, ok := strings.Cut(report, `id="`+id+`">`)
	text, _, _ = strings.Cut(text, "</script>")
	packed, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil {
		t.Fatal(id, ok, err)
	}
	if err := json.NewDecoder(flate.NewReader(bytes.NewReader(packed))).Decode(into); err != nil {
		t.Fatal(id, err)
	}
}

func TestAReportHasWhatTheResultsHave(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	page := d.report(web.ReportOptions{})
	if page != d.report(web.ReportOptions{}) {
		t.Error("the same revision gives other bytes")
	}
	var columns struct {
		Columns struct {
			ID     []string
			Status []int
		}
		Statuses []string
	}
	var details []struct {
		ID    string
		Texts [][2]string
	}
	unpack(t, page, "columns", &columns)
	unpack(t, page, "d0", &details)
	n := 0
	if err := d.store.Report(t.Context(), d.runID, runner.Variables{}, func(r *runner.Report) error {
		return r.Rollouts(func(one *schemas.Rollout) error {
			if details[n].ID != one.RolloutID || !strings.HasSuffix(one.RolloutID, columns.Columns.ID[n]) || columns.Statuses[columns.Columns.Status[n]] != "suspended" {
				t.Errorf("rollout %d is %+v", n, details[n])
			}
			n++
			return nil
		})
	}); err != nil || n != len(details) || n != 3 {
		t.Error(n, len(details), err)
	}
	if strings.Contains(page, "as of now") || !strings.Contains(page, "<li>not final</li>") {
		t.Error("it says that it is live")
	}
	if links := regexp.MustCompile(`(href|src|action)="(/|https?:)[^"]*"`).FindAllString(page, -1); len(links) > 0 {
		t.Errorf("it leads elsewhere: %v", links)
	}
}

// A report says whether its run is over.
func TestAReportOfARunThatHasEndedIsFinal(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	d := newDesk(t)
	if page := d.reportOf(d.scoredRun("no"), web.ReportOptions{}); !strings.Contains(page, "<li>final</li>") || strings.Contains(page, "not final") {
		t.Error("a run that has ended is not final")
	}
}

func TestThePolicyOfAReportAllowsItsStyleAndItsScriptAlone(t *testing.T) {
	t.Parallel()
	page := newDesk(t).report(web.ReportOptions{})
	for what, pattern := range map[string]string{"style": `(?s)<style>(.*?)</style>`, "script": `(?s)<script>(.*?)</script>`} {
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(page, -1)
		if len(found) != 1 {
			t.Fatalf("%d elements %s", len(found), what)
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		if want := what + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"; !strings.Contains(page, want) {
			t.Errorf("the policy lacks %s", want)
		}
	}
	if strings.Contains(page, "<!--") || strings.Contains(page, "connect-src") {
		t.Error("a comment, or a network")
	}
}

func TestAReportLeavesOutWhatItIsTold(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var details []map[string]any
	unpack(t, d.report(web.ReportOptions{RedactIO: true}), "d0", &details)
	for _, one := range details {
		if data, err := json.Marshal(one); err != nil || strings.Contains(string(data), "12") && strings.Contains(string(data), "amount") {
			t.Errorf("%s %v", data, err)
		}
	}
	// The same page again: nothing of what agents were asked is in what stands before the data.
	if page := d.report(web.ReportOptions{RedactIO: true, Missing: "Logs are <missing>."}); strings.Contains(page, "amount") || !strings.Contains(page, "Logs are &lt;missing&gt;.") {
		t.Error("what was to be left out, or what is missing")
	}
}

// A report says what whoever has no JavaScript does not see, and has no control that would do nothing.
func TestAReportWithoutScript(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newSite(t, 101, "account")
	d := &desk{TB: t, store: s.store, runID: s.runID}
	page := d.report(web.ReportOptions{RedactIO: true})
	for _, want := range []string{"<noscript><p class=\"warn\">Without JavaScript only the first 100 of 101 evaluations are shown, the details", `<body class="file">`, "@media (scripting:none){.file :is(.filters,[data-pager]){display:none}"} {
		if !strings.Contains(page, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	for _, not := range []string{">Apply<", "next and previous failure"} {
		if strings.Contains(page, not) {
			t.Errorf("the report has %q", not)
		}
	}
	if page := newDesk(t).report(web.ReportOptions{}); !strings.Contains(page, "Without JavaScript the details of rollouts cannot be opened") {
		t.Error("of a report of few rollouts")
	}
}
