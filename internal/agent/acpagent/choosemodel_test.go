package acpagent

import (
	"net/http"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/testenv"
)

// A27: the entry's model is chosen by the option that an agent has for it. One that it does not offer
// is not silently another.
func TestTheModelIsChosenByAnOption(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	for name, c := range map[string]struct {
		change func(r *rollout)
		set    string // the values that are set
		fault  string
	}{
		"offered":         {change: named("large"), set: "large"},
		"current already": {change: named("small")},
		"none is named":   {change: named("")},
		"the entry sets the option": {change: func(r *rollout) {
			named("large")(r)
			SettingsOf(r.entry).ConfigOptions = map[string]string{"model": "small"}
		}, set: "small"},
		"not offered by an agent with an account of its own": {change: named("huge")},
		"not offered, and told in the environment": {change: func(r *rollout) {
			proxy, _ := model(r.t, http.StatusOK, nil)
			r.useModel(proxy) // small-1
		}},
		"not offered, and not told": {change: func(r *rollout) {
			proxy, _ := model(r.t, http.StatusOK, nil)
			r.useModel(proxy)
			delete(r.entry.Env, "MODEL_NAME")
		}, fault: `the agent does not offer the model "small-1" of its entry (model.name); it offers: small, large`},
		"the registry's default of an agent with an account of its own": {change: func(r *rollout) {
			r.entry.Extends = "codex"
			named("gpt-5")(r)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t)
			c.change(r)
			out := r.prompt("[[SAY done]]")
			if c.fault != "" {
				mustFault(t, out, fault.Start, c.fault)
			} else if out.Fault != nil {
				t.Error(out.Fault)
			}
			set := strings.Join(r.sent(0, "client", `"session/set_config_option"`), "\n")
			if (set != "") != (c.set != "") || strings.Count(set, `"configId":"model"`) != strings.Count(set, `"value":"`+c.set+`"`) || strings.Contains(set, "\n") {
				t.Errorf("set: %s", set)
			}
		})
	}
}

// named names the model of an agent that talks to its provider itself.
func named(name string) func(r *rollout) {
	return func(r *rollout) { r.entry.Model = &agent.Model{API: "openai", URL: "http://127.0.0.1:1", Name: name} }
}
