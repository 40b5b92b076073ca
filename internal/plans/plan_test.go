package plans

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
)

// The address of a model is no secret, unless there is more in it.
func TestBaseURLsAreShown(t *testing.T) {
	codex, _ := agent.Registered("codex")
	p := Plan{Agents: []agent.Entry{codex}}
	for url, shown := range map[string]bool{"http://models.example/v1": true, "https://me:pass@models.example/v1": false, "https://models.example/v1?key=abcdefgh": false} {
		red := p.Redactor(nil, func(name string) (string, bool) {
			return map[string]string{"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-0123456789"}[name], name == "OPENAI_BASE_URL" || name == "OPENAI_API_KEY"
		})
		if got := red.String("no answer from " + url + " with sk-0123456789"); strings.Contains(got, url) != shown || strings.Contains(got, "sk-0") {
			t.Errorf("%s: %s", url, got)
		}
	}
}
