package modelproxy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A21: what a request offers its model is read in each of the four formats, wherever it is cut into
// pieces.
func TestWhatARequestOffers(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want []OfferedTool
		text []string
	}{
		"chat completions": {
			body: `{"model":"m","messages":[{"role":"system","content":"I am\nwrite_x"},{"role":"user","content":"use read_x"}],"tools":[{"type":"function","function":{"name":"a","description":"does a"}}]}`,
			want: []OfferedTool{{"a", "does a"}}, text: []string{"\nwrite_x\n", "does a"},
		},
		"responses": {
			body: `{"instructions":"I am","input":[{"role":"developer","content":[{"type":"input_text","text":"told"}]},{"role":"user","content":"use read_x"}],
				"tools":[{"type":"function","name":"a","description":"does a"},{"type":"namespace","name":"mcp__s","tools":[{"name":"b","description":"does b"}]},{"type":"tool_search"}]}`,
			want: []OfferedTool{{"a", "does a"}, {"mcp__s__b", "does b"}, {"mcp__s", ""}, {"tool_search", ""}}, text: []string{"I am", "told", "does b"},
		},
		"responses, a text": {body: `{"input":"use read_x","model":"m"}`},
		"messages": {
			body: `{"system":[{"type":"text","text":"I am"}],"messages":[{"role":"user","content":"use read_x"}],"tools":[{"name":"a","description":"does a","input_schema":{"type":"object"}},{"type":"tool_search_tool_regex_20251119","name":"tool_search_tool_regex"}]}`,
			want: []OfferedTool{{"a", "does a"}, {"tool_search_tool_regex", ""}}, text: []string{"I am"},
		},
		"gemini": {
			body: `{"contents":[{"role":"user","parts":[{"text":"use read_x"}]}],"systemInstruction":{"parts":[{"text":"I am"}]},"tools":[{"functionDeclarations":[{"name":"a","description":"does a"}]},{"googleSearch":{}}]}`,
			want: []OfferedTool{{"a", "does a"}}, text: []string{"I am"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for pieces := 1; pieces < 20; pieces += 6 {
				got := inPieces(wantedOfOffers, []byte(c.body), func(left int) int { return (left + pieces - 1) / pieces }).offer()
				if diff := cmp.Diff(c.want, got.Tools); diff != "" || got.Unread {
					t.Errorf("unread %v: %s", got.Unread, diff)
				}
				for _, want := range c.text {
					if !strings.Contains(got.Text, want) {
						t.Errorf("expected %q in %q", want, got.Text)
					}
				}
				if strings.Contains(got.Text, "read_x") {
					t.Errorf("got words of the user: %q", got.Text)
				}
			}
		})
	}
}

func TestARequestThatCannotBeRead(t *testing.T) {
	for _, body := range []string{``, `{"tools":[`, `{"tools":{}}`, `{"tools":[1]}`, `{"tools":[{"name":1}]}`, "\x28\xb5\x2f\xfd", `{"messages":[{"role":"system","content":"` + strings.Repeat("x", 2<<20) + `"}]}`} {
		if got := inPieces(wantedOfOffers, []byte(body), func(left int) int { return left }).offer(); !got.Unread {
			t.Errorf("%.40q: got %.100v", body, got)
		}
	}
}
