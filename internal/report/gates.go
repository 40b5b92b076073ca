package report

import (
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/summary"
	verdicts "github.com/evalrun/evalrun/eval/verdict"
	"github.com/evalrun/evalrun/internal/redact"
)

// gates are the thresholds of a run, as they were judged.
type gates struct {
	list []summary.Gate
	// several is set if the run has several agents, so that each line must name its agent.
	several bool
}

func (r *Report) gates(s Showing) gates {
	if r.Statistics == nil {
		return gates{}
	}
	return gates{verdicts.Gates(r.Statistics, s.Accept), len(r.Statistics.Agents) > 0}
}

// text says how each threshold by interval was judged. Thresholds by point are numbers of the
// table, and the verdict names those that are not met.
func (g gates) text(out *lines) {
	for _, one := range g.list {
		if one.By == eval.ByInterval {
			out.printf("%s: %s\n", gateWord(one), g.line(one))
		}
	}
}

func (g gates) markdown(out *lines) {
	if len(g.list) == 0 {
		return
	}
	out.printf("\n")
	tableHead(out, "threshold", "agent", "verdict")
	for _, one := range g.list {
		agent := one.Agent
		if g.several {
			agent = g.agent(one)
		}
		tableRow(out, markdown(one.String()), markdown(agent), string(one.Verdict))
	}
}

// line says how a threshold was judged, for which agent, and how far that can be trusted.
func (g gates) line(one summary.Gate) string {
	line := one.String()
	if who := g.agent(one); who != "" {
		line = who + ": " + line
	}
	for _, f := range one.FalseFail {
		if f.At >= one.Min && f.P >= 0.005 { // else the failure is right, or too rare to mention
			line += fmt.Sprintf("; fails by chance in %s of runs at a true rate of %.3g", percent(f.P), f.At)
		}
	}
	return line
}

// agent names the agent for which a threshold was judged. It is empty if there is one agent.
func (g gates) agent(one summary.Gate) string {
	switch {
	case !g.several:
		return ""
	case one.Agent == "":
		return "all agents together"
	}
	return redact.Line(one.Agent)
}

// gateWord is the verdict on a threshold in words.
func gateWord(g summary.Gate) string {
	return map[summary.GateVerdict]string{
		summary.GatePass: "threshold met", summary.GateFail: "threshold not met", summary.GateUndecided: "threshold",
	}[g.Verdict]
}
