package fault_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/fault"
)

func TestUsersReadOfEachCategory(t *testing.T) {
	var docs strings.Builder
	for _, page := range []string{"agents.md", "acp.md", "operations.md", "rollout.md"} {
		docs.WriteString(read(t, page))
	}
	for _, c := range fault.Categories {
		if !strings.Contains(docs.String(), "`"+string(c)+"`") {
			t.Errorf("no page describes the category %s", c)
		}
	}
}

func TestOwnersAreThoseOfTheDocs(t *testing.T) {
	list := regexp.MustCompile(`(?s)The \*agent's own\* faults \(([^)]*)\)`).FindStringSubmatch(read(t, "evalsets.md"))
	if list == nil {
		t.Fatal("docs/evalsets.md does not list the agent's own faults")
	}
	own := regexp.MustCompile(`,\s+`).Split(list[1], -1)
	for _, c := range fault.Categories {
		want := fault.OwnerEnvironment
		if slices.Contains(own, string(c)) {
			want = fault.OwnerAgent
		}
		if got := c.Owner(); got != want {
			t.Errorf("%s: owner %s, docs/evalsets.md says %s", c, got, want)
		}
	}
	if got := fault.Category("of a later version").Owner(); got != fault.OwnerEnvironment {
		t.Errorf("an unknown category belongs to %s", got)
	}
}

func read(t *testing.T, page string) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
