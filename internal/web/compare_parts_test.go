package web

import (
	"bytes"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval/compare"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Of many evaluations that differ a page shows a part of fewer than 5,000 elements. Links lead to the
// others, and with all of them no evaluation is left out. A file has all of them.
func TestAComparisonOfManyIsShownInParts(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	const worse, better, epochs = 700, 300, 7
	doc := &compare.Document{A: compare.Source{RunID: "a", Agents: []string{"x", "y"}}, B: compare.Source{RunID: "b", Agents: []string{"x", "y"}}, Comparisons: []compare.Row{{By: "score"}}}
	for i := range worse + better {
		item := compare.Item{EvaluationID: fmt.Sprint("e", i), EvaluationName: "name", Agent: "x", D: -1}
		if i >= worse {
			item.D = 1
		}
		for e := range epochs {
			item.RolloutsA = append(item.RolloutsA, compare.Rollout{RolloutID: fmt.Sprint("r", i, e), Epoch: e + 1, Status: "passed"})
		}
		item.RolloutsB = item.RolloutsA
		doc.Items = append(doc.Items, item)
	}
	item, next := regexp.MustCompile(` data-item="([^"]*)"`), regexp.MustCompile(`href="\?([^"]*)#(worse|better)">Next ›`)
	for _, key := range []string{"worse", "better"} {
		seen := map[string]bool{}
		for n := 1; n > 0; {
			page := &comparePage{A: "a", B: "b", Margin: "0.1", Parts: map[string]int{key: n}}
			page.show(doc)
			var out bytes.Buffer
			if err := templates().Execute(&out, "compare.html", page); err != nil {
				t.Fatal(err)
			}
			text := out.String()
			if n := len(regexp.MustCompile(`<[a-zA-Z]`).FindAllString(text, -1)); n >= 5000 {
				t.Errorf("%s: %d elements", key, n)
			}
			if !strings.Contains(text, " +2</td>") {
				t.Error("that there are more epochs is not said")
			}
			for _, m := range item.FindAllStringSubmatch(text, -1) {
				seen[m[1]] = true
			}
			n = 0
			for _, m := range next.FindAllStringSubmatch(strings.ReplaceAll(text, "&amp;", "&"), -1) {
				if m[2] != key {
					continue
				}
				q, err := url.ParseQuery(m[1])
				if err != nil || q.Get("margin") != "0.1" || q.Get("a") != "a" {
					t.Fatal(m[0], err)
				}
				n, _ = strconv.Atoi(q.Get(key))
			}
		}
		if other := map[string]int{"worse": better, "better": worse}[key]; len(seen) < worse+better-other || len(seen) > worse+better-other+100 {
			t.Errorf("%s: %d evaluations were shown", key, len(seen))
		}
	}
	file := &comparePage{Offline: true}
	file.show(doc)
	if n := len(file.Regressed.Items) + len(file.Improved.Items); n != worse+better {
		t.Errorf("a file has %d of them", n)
	}
}
