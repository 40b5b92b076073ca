package acpagent

import (
	"maps"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
)

// Every file of an entry must be one that can be written once its model is there, or the agent
// would go its own way.
func TestPlaceholdersOfTheRegistryAreKnown(t *testing.T) {
	fill := map[string]string{}
	for _, name := range placeholderNames {
		fill[name] = "x"
	}
	for name := range registry {
		e, _ := agent.Registered(name)
		values := maps.Clone(e.Env)
		maps.Copy(values, SettingsOf(e).Files)
		for k, v := range values {
			got, ok := fillIn(v, fill)
			for _, word := range []string{"{home", "{model", "{server", "{tool"} {
				if strings.Contains(got, word) || !ok {
					t.Errorf("%s: %s is %q", name, k, got)
				}
			}
		}
		if !strings.Contains(SettingsOf(e).ToolName, "{server}") || !strings.Contains(SettingsOf(e).ToolName, "{tool}") {
			t.Errorf("%s: toolName %q", name, SettingsOf(e).ToolName)
		}
	}
}
