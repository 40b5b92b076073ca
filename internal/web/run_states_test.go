package web_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// The states of a run: its page says each of them in words.
func TestTheStatesOfARun(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	check := func(name, page string, has, lack []string) {
		t.Helper()
		_, page, _ = strings.Cut(page, "<main")
		for _, want := range has {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page lacks %q:\n%s", name, want, page)
			}
		}
		for _, not := range lack {
			if strings.Contains(page, not) {
				t.Errorf("%s: the page has %q", name, not)
			}
		}
	}
	s := newSite(t, 3, "ask", "account")
	planned := s.planned()
	gates := func(page string) string {
		_, page, _ = strings.Cut(page, "<h2>Gates</h2>")
		page, _, _ = strings.Cut(page, "</table>")
		return page
	}
	page := s.page("/runs/" + planned)
	check("nothing is scored yet", page, []string{"12 rollouts are open and can still change it", "3 evaluations × 2 epochs × 2 agents"}, []string{"Nothing failed", "The file of the eval set has changed"})
	if text := gates(page); strings.Count(text, "no data") != 4 || strings.Count(text, `<td class="num">–</td>`) != 4 || strings.Contains(text, `<td class="num">0.000</td>`) {
		t.Errorf("nothing is scored yet: the gates say %s", text)
	}
	check("some wait", s.page("/runs/"+s.runID), []string{"What is waited for", "Exit code now: 75."}, []string{"no data", "Nothing failed"})
	if _, err := s.store.Cancel(t.Context(), s.runID, runner.CancelOptions{}); err != nil {
		t.Fatal(err)
	}
	check("cancelled", s.page("/runs/"+s.runID), []string{`<span id="t-status">cancelled</span>`, `<span class="num" id="n-cancelled">8</span>`, "8 rollouts cancelled.", `<span role="status">final</span>`}, []string{"What is waited for", "evalrun resume", "Nothing failed"})
	good := newSite(t, 2, "account")
	check("all have passed", good.page("/runs/"+good.runID), []string{"Nothing failed</span></p><p", "8 of 8 rollouts"}, []string{"show all"})
	check("all have passed, and the failed are asked for", good.page("/runs/"+good.runID+"?status=failed"), []string{`Nothing failed</span>; <a data-state href="?#rl">show all</a>`, "0 of 8 rollouts", `data-status="failed" href="?#rl" aria-current="true">`}, nil)
	path := filepath.Join(filepath.Dir(good.store.Dir()), "set.json")
	set, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const changed = "The file of the eval set has changed since this run was planned"
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("the file is as it was", good.page("/runs/"+good.runID), nil, []string{changed})
	write(append(set, '\n'))
	check("the file has changed", good.page("/runs/"+good.runID), []string{changed}, nil)
	write(set)
	check("the file is as it was again", good.page("/runs/"+good.runID), nil, []string{changed})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check("there is no file", good.page("/runs/"+good.runID), nil, []string{changed})
}
