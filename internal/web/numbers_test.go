package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/web"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// results is the results document of a run of the site.
func (s *site) results(runID string) (out schemas.Results) {
	s.Helper()
	var document bytes.Buffer
	if err := s.store.Report(s.Context(), runID, runner.Variables{}, func(r *runner.Report) error { return r.Write(&document, "json") }); err != nil {
		s.Fatal(err)
	}
	if err := json.Unmarshal(document.Bytes(), &out); err != nil {
		s.Fatal(err)
	}
	return out
}

// planned is another run of the site's set, that has not begun.
func (s *site) planned() string {
	s.Helper()
	set, err := runner.Load([]string{filepath.Join(filepath.Dir(s.store.Dir()), "set.json")}, runner.LoadOptions{})
	if err != nil {
		s.Fatal(err)
	}
	created, err := s.store.Create(s.Context(), set, runner.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return created.RunID
}

// cells are the texts of the cells of a row, by the heading of their column, as the page shows it on a
// narrow screen.
func cells(row string) map[string]string {
	out := map[string]string{}
	for _, m := range regexp.MustCompile(`(?s)<t[dh][^>]* data-l="([^"]*)"[^>]*>(.*?)</t[dh]>`).FindAllStringSubmatch(row, -1) {
		out[m[1]] = html.UnescapeString(tagsOf.ReplaceAllString(m[2], ""))
	}
	return out
}

// unfinishedSet has an evaluation for each state that is left while its run is worked on: FIFO blocks
// whoever reads it.
const unfinishedSet = `{"version": "1.0", "id": "unfinished", "name": "Unfinished", "agent": {"type": "function", "command": ["sh", "-c", "read -r line; case $line in *block*) cat FIFO ;; esac; echo '{}'"]},
 "evaluators": [{"version": "1.0", "id": "person", "type": "human", "evaluatorConfig": {"name": "Person", "question": "Good?"}}, {"id": "slow", "type": "command", "command": ["sh", "-c", "cat FIFO"]}],
 "evaluations": [
  {"id": "running", "name": "Running", "inputs": {"do": "block"}, "evaluationCriterias": {}},
  {"id": "evaluating", "name": "Evaluating", "inputs": {}, "evaluationCriterias": {"slow": {}}},
  {"id": "scoring", "name": "Scoring", "inputs": {}, "evaluationCriterias": {"person": null}},
  {"id": "unscored", "name": "Unscored", "inputs": {}, "evaluationCriterias": {}}]}`

// unfinished is a run of unfinishedSet, with each evaluation in the state of its name until the test ends.
func (s *site) unfinished() (runID string) {
	s.Helper()
	dir := s.TempDir()
	fifo, path := filepath.Join(dir, "fifo"), filepath.Join(dir, "set.json")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.WriteFile(path, []byte(strings.ReplaceAll(unfinishedSet, "FIFO", fifo)), 0o600)); err != nil {
		s.Fatal(err)
	}
	set, err := runner.Load([]string{path}, runner.LoadOptions{})
	if err != nil {
		s.Fatal(err)
	}
	created, err := s.store.Create(s.Context(), set, runner.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := s.store.Run(ctx, created.RunID, runner.RunOptions{})
		ended <- err
	}()
	s.Cleanup(func() {
		cancel()
		<-ended // how it was interrupted is of no interest
	})
	want := store.Tally{Counts: store.Counts{Total: 4, Running: 1, Evaluating: 1, Scoring: 1, Completed: 1}, Unscored: 1}
	for {
		changed := s.store.Internal().Changed(created.RunID)
		switch got, err := s.store.Internal().Tally(s.Context(), created.RunID, 1); {
		case err != nil:
			s.Fatal(err)
		case got == want:
			return created.RunID
		}
		select {
		case <-changed:
		case err := <-ended:
			ended <- err
			s.Fatal("the run has ended", err)
		case <-time.After(testenv.Patience):
			s.Fatal("the run does not come to the states that are wanted")
		}
	}
}

// Every number of every page is that of the results document, for runs in all states: one that has
// passed, failed, faulted and suspended rollouts, one that has not begun, one that was cancelled while
// some waited, and one that is worked on.
func TestEveryNumberOfEveryPageIsThatOfTheResults(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newSite(t, 5, "account", "wrong", "fault", "ask", "account")
	pending, cancelled := s.planned(), s.planned()
	if _, err := s.store.Run(t.Context(), cancelled, runner.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Cancel(t.Context(), cancelled, runner.CancelOptions{}); err != nil {
		t.Fatal(err)
	}
	states := map[string]bool{}
	for _, runID := range []string{s.runID, pending, cancelled, s.unfinished()} {
		results := s.results(runID)
		counts := map[string]int{}
		list := s.page("/runs/" + runID + "?view=rollouts")
		for _, one := range results.EvaluationSetResults {
			status := statusOf(one)
			counts[status]++
			states[status] = true
			_, row, _ := strings.Cut(list, `id="r`+one.RolloutID+`"`)
			row, _, _ = strings.Cut(row, "</tr>")
			got := cells(row)
			for name, want := range map[string]string{"Status": status, "Epoch": fmt.Sprint(one.Epoch), "Score": three(one.Score), "Working": web.FormatMs(one.Clocks.WorkingMs), "Waiting": web.FormatMs(one.Clocks.WaitingMs)} {
				if got[name] != want {
					t.Errorf("%s of the rollout %s is %q in the list, %q in the results", name, one.RolloutID, got[name], want)
				}
			}
			s.checkRollout(runID, one)
		}
		for status, n := range counts {
			if !strings.Contains(list, fmt.Sprintf(`id="n-%s">%d<`, status, n)) {
				t.Errorf("run %s: the page does not count %d %s", runID, n, status)
			}
		}
		if n := len(regexp.MustCompile(`<tr id="r`).FindAllString(list, -1)); n != len(results.EvaluationSetResults) {
			t.Errorf("run %s: %d rows", runID, n)
		}
		s.checkRunInList(results)
		s.checkMatrix(results)
	}
	for _, status := range web.Statuses {
		if !states[status] {
			t.Errorf("no rollout is %s", status)
		}
	}
}

// statusOf is the status of a rollout in the lists.
func statusOf(one schemas.Rollout) string {
	switch {
	case one.Status != schemas.StateCompleted:
		return string(one.Status)
	case one.Score == nil:
		return "unscored"
	case *one.Score < 1:
		return "failed"
	}
	return "passed"
}

// checkRollout holds the page of a rollout against its results.
func (s *site) checkRollout(runID string, one schemas.Rollout) {
	s.Helper()
	page := s.page("/runs/" + runID + "/rollouts/" + one.RolloutID)
	c := one.Clocks
	_, clocks, _ := strings.Cut(page, `<h2 id="timeline">`)
	clocks, _, _ = strings.Cut(clocks, "</p>")
	got := tagsOf.ReplaceAllString(clocks, "")
	want := fmt.Sprintf("Timelinewall %s= working %s+ waiting %s+ queued %s+ evaluating %s", web.FormatMs(c.WallMs), web.FormatMs(c.WorkingMs), web.FormatMs(c.WaitingMs), web.FormatMs(c.QueuedMs), web.FormatMs(c.EvaluatingMs))
	if rest, ok := strings.CutPrefix(got, want); !ok || rest != "" && !strings.HasPrefix(rest, "and since then ") {
		s.Errorf("%s: the page says %q, the results %q", one.RolloutID, got, want)
	}
	for _, text := range []string{`<li id="status"><span class="st ` + statusOf(one) + `">`, `id="score">` + three(one.Score) + `<`, fmt.Sprintf(", epoch %d<", one.Epoch)} {
		if !strings.Contains(page, text) {
			s.Errorf("%s: its page lacks %s", one.RolloutID, text)
		}
	}
}

// checkMatrix holds the scores of evaluations and agents in the matrix against the statistics, of which
// they are the parts, and the sums of the clocks against the rollouts.
func (s *site) checkMatrix(results schemas.Results) {
	s.Helper()
	agents := results.Statistics.PerAgent()
	path := "/runs/" + results.RunID
	for _, query := range []string{"", "?agent=" + url.QueryEscape(plain(results.Agents[0].Name))} {
		page := s.page(path + query)
		sums, n := make([]float64, len(agents)), make([]int, len(agents))
		for _, m := range regexp.MustCompile(`id="p\d+-(\d+)">([0-9.]+)<`).FindAllStringSubmatch(page, -1) {
			a, _ := strconv.Atoi(m[1])
			score, _ := strconv.ParseFloat(m[2], 64)
			sums[a], n[a] = sums[a]+score, n[a]+1
		}
		for i, a := range agents {
			if query != "" && i > 0 {
				a.Score = stats.Estimate{}
			}
			if n[i] != a.Score.N || n[i] > 0 && math.Abs(sums[i]/float64(n[i])-*a.Score.Mean) > 0.0006 {
				s.Errorf("run %s%s: agent %d has %d scores, %.3f on average, in the matrix; in the results %+v", results.RunID, query, i, n[i], sums[i]/float64(n[i]), a.Score)
			}
		}
		if strings.Contains(page, `data-l="Score"`) != (query != "" || len(agents) == 1) {
			s.Errorf("run %s%s: one score over several agents, or none with one", results.RunID, query)
		}
		working := map[string]int64{}
		for _, one := range results.EvaluationSetResults {
			if query == "" || one.Agent == results.Agents[0].Name {
				working[one.EvaluationID] += one.Clocks.WorkingMs
			}
		}
		rows := strings.Split(page, `<tr><th scope="row"><div class="evn">`)[1:]
		if len(rows) != len(working) {
			s.Errorf("run %s%s: %d rows of %d evaluations", results.RunID, query, len(rows), len(working))
		}
		for _, row := range rows {
			id := results.EvaluationSetResults[slices.IndexFunc(results.EvaluationSetResults, func(one schemas.Rollout) bool { return strings.Contains(row, one.RolloutID) })].EvaluationID
			if got := cells(row)["Working, sum"]; got != web.FormatMs(working[id]) {
				s.Errorf("run %s%s: %s has worked %s in the matrix, %s in the results", results.RunID, query, id, got, web.FormatMs(working[id]))
			}
		}
	}
}

// plain is a name as a page has it in its attributes.
func plain(name string) string {
	return regexp.MustCompile(`[\x00-\x1f\x{202a}-\x{202e}]`).ReplaceAllString(name, "\ufffd")
}

// checkRunInList holds the row of a run in the list of runs against its results.
func (s *site) checkRunInList(results schemas.Results) {
	s.Helper()
	_, row, _ := strings.Cut(s.page("/?q="+url.QueryEscape(results.RunID)), `<th scope="row" data-l="Run">`)
	row, _, _ = strings.Cut(row, "</tr>")
	got, shown, want := cells(row), map[string]int{}, map[string]int{}
	for _, m := range regexp.MustCompile(`(\d+) (\w+)`).FindAllStringSubmatch(got["Rollouts"], -1) {
		shown[m[2]], _ = strconv.Atoi(m[1])
	}
	for _, one := range results.EvaluationSetResults {
		want[statusOf(one)]++
	}
	if !maps.Equal(shown, want) {
		s.Errorf("run %s: the list of runs has %v, the results %v", results.RunID, shown, want)
	}
	for status, n := range want {
		if bar := fmt.Sprintf(`<rect class="f%s" x="[0-9.]+%%" width="%.3f%%"`, status, 100*float64(n)/float64(len(results.EvaluationSetResults))); !regexp.MustCompile(bar).MatchString(row) {
			s.Errorf("run %s: its bar lacks %s in %s", results.RunID, bar, row)
		}
	}
	if got["Score"] == "not up to date" { // it has no document of this revision
		return
	}
	for _, a := range results.Summary.Agents {
		if !strings.Contains(got["Score"], three(a.Score)) {
			s.Errorf("run %s: its scores are %q, and that of an agent is %s", results.RunID, got["Score"], three(a.Score))
		}
	}
}

// On every page of a rollout the table of the timeline has a row for each bar, with the same name and
// the same duration. The lanes of the clock follow each other without a gap and add up to the wall time
// of the results.
func TestTheTableOfTheTimelineIsItsBars(t *testing.T) {
	t.Parallel()
	s := newSite(t, 4, "account", "wrong", "fault", "ask")
	if err := s.store.Triggers(t.Context(), s.runID, false, func(tr runner.Trigger) error {
		_, err := s.store.Deliver(t.Context(), tr.TriggerID, runner.Delivery{Payload: json.RawMessage(`{"approved": true}`), By: "test"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Run(t.Context(), s.runID, runner.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?s)<tr data-from="(\d+)" data-to="(\d+)"><td[^>]*>.*?</td><td[^>]*>.*?</td><td>(.*?)</td><td class="u">(.*?)</td></tr>`)
	bar := regexp.MustCompile(`(?s)<g><title>(.*?)</title>`)
	acting := regexp.MustCompile(`ESC|BEL|U\+[0-9A-F]{4}|\x{fffd}`) // each is shown in its own way
	for _, one := range s.results(s.runID).EvaluationSetResults {
		page := s.page(s.path(one))
		var bars, rows []string
		for _, m := range bar.FindAllStringSubmatch(page, -1) {
			bars = append(bars, acting.ReplaceAllString(html.UnescapeString(m[1]), ""))
		}
		var wall time.Duration
		end := int64(0)
		for _, m := range row.FindAllStringSubmatch(page, -1) {
			from, _ := strconv.ParseInt(m[1], 10, 64)
			to, _ := strconv.ParseInt(m[2], 10, 64)
			took := time.Duration(to-from) * time.Microsecond
			rows = append(rows, acting.ReplaceAllString(html.UnescapeString(tagsOf.ReplaceAllString(m[4], "")), "")+", "+web.FormatDuration(took))
			if m[3] != "Clock" {
				continue
			}
			if end != 0 && from != end {
				t.Errorf("%s: the clock goes on at %d, not at %d", one.EvaluationID, from, end)
			}
			end, wall = to, wall+took
		}
		slices.Sort(bars)
		slices.Sort(rows)
		if len(rows) < 3 || !slices.Equal(bars, rows) {
			t.Errorf("%s:\nbars  %q\ntable %q", one.EvaluationID, bars, rows)
		}
		if d := wall - time.Duration(one.Clocks.WallMs)*time.Millisecond; d < 0 || d >= 4*time.Millisecond { // the results have whole ones of each of the four clocks
			t.Errorf("%s: the clock adds up to %v, the wall time is %d ms", one.EvaluationID, wall, one.Clocks.WallMs)
		}
	}
}
