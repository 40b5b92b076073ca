package report

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// WriteJUnit writes the report as JUnit XML, with a test case for each rollout. A rollout that
// faulted, or whose evaluators failed, is an error. A rollout whose score does not pass is a
// failure. All others that lack their score, or that of an evaluator, are skipped, with the reason.
// Thresholds are a test suite of their own. The properties have the verdict.
//
// The system-out of a rollout that failed says why.
func (r *Report) WriteJUnit(w io.Writer, s Showing) error {
	c, err := r.census()
	if err != nil {
		return err
	}
	j, err := s.judgement(r)
	if err != nil {
		return err
	}
	rollouts := suite{tests: c.total, failures: c.verdicts[failed],
		errors: c.verdicts[verdict(schemas.StateFaulted)] + c.broken}
	rollouts.skipped = c.total - rollouts.failures - rollouts.errors - c.verdicts[passed] + c.partly
	gates := r.gates(s)
	thresholds := gates.suite()
	x := &xmlWriter{w: bufio.NewWriter(w)}
	x.text(xml.Header)
	x.open("", "testsuites", rollouts.plus(thresholds).attrs("evalrun", c.working)...)
	x.open("  ", "testsuite", rollouts.attrs(r.EvaluationSetName, c.working)...)
	x.open("    ", "properties")
	properties := [][2]string{
		{"runId", r.RunID}, {"evaluationSetId", r.EvaluationSetID}, {"verdict", j.Word}, {"headline", j.Headline()},
		{"score", formatScore(r.Summary.Score)},
	}
	for _, a := range r.Summary.Agents {
		properties = append(properties, [2]string{"score." + a.Agent, formatScore(a.Score)})
	}
	for _, p := range properties {
		x.empty("      ", "property", "name", p[0], "value", p[1])
	}
	x.close("    ", "properties")
	if err := r.Rollouts(func(one *schemas.Rollout) error {
		r.testCase(x, c, one, s)
		return x.err
	}); err != nil {
		return err
	}
	x.close("  ", "testsuite")
	if thresholds.tests > 0 {
		name := r.EvaluationSetName + ": thresholds"
		x.open("  ", "testsuite", thresholds.attrs(name, 0)...)
		gates.testCases(x, name)
		x.close("  ", "testsuite")
	}
	x.close("", "testsuites")
	return x.flush()
}

// MergeJUnit writes documents of [Report.WriteJUnit] as one.
func MergeJUnit(w io.Writer, documents [][]byte) error {
	var all suite
	var took time.Duration
	var suites bytes.Buffer
	for _, document := range documents {
		var root struct {
			Tests    int     `xml:"tests,attr"`
			Failures int     `xml:"failures,attr"`
			Errors   int     `xml:"errors,attr"`
			Skipped  int     `xml:"skipped,attr"`
			Time     float64 `xml:"time,attr"`
			Content  []byte  `xml:",innerxml"`
		}
		if err := xml.Unmarshal(document, &root); err != nil {
			return err
		}
		all = all.plus(suite{root.Tests, root.Failures, root.Errors, root.Skipped})
		took += time.Duration(root.Time * float64(time.Second))
		suites.Write(bytes.TrimPrefix(root.Content, []byte("\n")))
	}
	x := &xmlWriter{w: bufio.NewWriter(w)}
	x.text(xml.Header)
	x.open("", "testsuites", all.attrs("evalrun", took)...)
	x.text(suites.String())
	x.close("", "testsuites")
	return x.flush()
}

// suite counts test cases by their outcome.
type suite struct{ tests, failures, errors, skipped int }

func (s suite) plus(other suite) suite {
	return suite{s.tests + other.tests, s.failures + other.failures, s.errors + other.errors, s.skipped + other.skipped}
}

func (s suite) attrs(name string, took time.Duration) []string {
	return []string{"name", name, "tests", fmt.Sprint(s.tests),
		"failures", fmt.Sprint(s.failures), "errors", fmt.Sprint(s.errors),
		"skipped", fmt.Sprint(s.skipped), "time", seconds(took)}
}

func (r *Report) testCase(x *xmlWriter, c census, one *schemas.Rollout, s Showing) {
	const in, deeper = "    ", "      "
	attrs := []string{"name", c.label(one), "classname", r.EvaluationSetName,
		"time", seconds(milliseconds(one.Clocks.WorkingMs))}
	v := r.verdict(one)
	isFailure := r.failed(one)
	if v == passed && !isFailure && !EvaluatorNotRun(one) {
		x.empty(in, "testcase", attrs...)
		return
	}
	x.open(in, "testcase", attrs...)
	switch {
	case v == passed && isFailure: // one of its evaluators failed
	case v == passed:
		x.empty(deeper, "skipped", "message", notRun(one))
	case v == verdict(schemas.StateFaulted):
		fault := schemas.Fault{}
		if one.Error != nil {
			fault = *one.Error
		}
		x.element("error", fault.Message, "message", firstLine(fault.Message), "type", fault.Category)
	case v == failed:
		x.element("failure", evaluatorLines(one),
			"message", fmt.Sprintf("score %s is less than %s", formatScore(one.Score), formatScore(&r.Pass)), "type", "score")
	case waits(one):
		x.empty(deeper, "skipped", "message", waitingFor(one))
	case v == unscored && EvaluatorFailed(one):
		x.element("error", evaluatorLines(one), "message", reason(one), "type", "evaluator-error")
	case v == unscored:
		x.empty(deeper, "skipped", "message", strings.TrimSuffix("not scored: "+reason(one), ": "))
	default:
		x.empty(deeper, "skipped", "message", string(v))
	}
	if isFailure || waits(one) {
		x.element("system-out", explainer{r, c, s}.failure(one).String())
	}
	x.close(in, "testcase")
}

// evaluatorLines writes the result of each evaluator in the words of the terminal.
func evaluatorLines(one *schemas.Rollout) string {
	var b strings.Builder
	for _, e := range one.EvaluationRunResults {
		fmt.Fprintf(&b, "%s: %s", e.EvaluatorName, formatScore(e.Result.Score))
		if e.Result.Scale != 0 {
			fmt.Fprintf(&b, " of %s", formatScore(&e.Result.Scale))
		}
		switch {
		case e.Result.Error != "" && e.Result.Score == nil:
			b.WriteString(" (failed: " + e.Result.Error + ")")
		case e.Result.Error != "":
			b.WriteString(" (" + e.Result.Error + ")")
		case e.Result.NotRun != "":
			b.WriteString(" (not run: " + e.Result.NotRun + ")")
		}
		b.WriteByte('\n')
		if e.Result.Error == "" && e.Result.NotRun == "" {
			for _, found := range foundBy(e.Result) {
				b.WriteString("  " + found + "\n")
			}
		}
	}
	return b.String()
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// xmlWriter writes XML with one element a line. Attributes come as names and values.
type xmlWriter struct {
	w   *bufio.Writer
	err error
}

func (x *xmlWriter) open(indent, name string, attrs ...string)  { x.tag(indent, name, attrs, ">\n") }
func (x *xmlWriter) empty(indent, name string, attrs ...string) { x.tag(indent, name, attrs, "/>\n") }
func (x *xmlWriter) close(indent, name string)                  { x.text(indent + "</" + name + ">\n") }

// element writes an element inside a test case.
func (x *xmlWriter) element(name, body string, attrs ...string) {
	x.tag("      ", name, attrs, ">")
	x.text(strings.ReplaceAll(escapeXML(body), "&#xA;", "\n"))
	x.close("", name)
}

func (x *xmlWriter) tag(indent, name string, attrs []string, end string) {
	x.text(indent + "<" + name)
	for i := 0; i < len(attrs); i += 2 {
		x.text(" " + attrs[i] + `="` + escapeXML(attrs[i+1]) + `"`)
	}
	x.text(end)
}

func (x *xmlWriter) text(s string) {
	if x.err == nil {
		_, x.err = x.w.WriteString(s)
	}
}

func (x *xmlWriter) flush() error {
	if x.err != nil {
		return x.err
	}
	return x.w.Flush()
}

// escapeXML also removes characters that XML cannot hold, and text that a CI system would execute.
func escapeXML(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(redact.Terminal(s))) // memory does not fail
	return b.String()
}

// suite counts the thresholds. An undecided threshold has neither failed nor passed.
func (g gates) suite() (s suite) {
	for _, one := range g.list {
		s.tests++
		switch one.Verdict {
		case summary.GateFail:
			s.failures++
		case summary.GateUndecided:
			s.skipped++
		}
	}
	return s
}

// testCases writes a test case for each threshold.
func (g gates) testCases(x *xmlWriter, class string) {
	const in, deeper = "    ", "      "
	for _, one := range g.list {
		name := fmt.Sprintf("%s of at least %g", one.What, one.Min)
		if one.By == eval.ByInterval {
			name += " by interval"
		}
		if who := g.agent(one); who != "" {
			name += " [" + who + "]"
		}
		attrs := []string{"name", name, "classname", class, "time", seconds(0)}
		switch one.Verdict {
		case summary.GateFail:
			x.open(in, "testcase", attrs...)
			x.element("failure", g.line(one), "message", one.String(), "type", "threshold")
			x.close(in, "testcase")
		case summary.GateUndecided:
			x.open(in, "testcase", attrs...)
			x.empty(deeper, "skipped", "message", one.String())
			x.close(in, "testcase")
		default:
			x.empty(in, "testcase", attrs...)
		}
	}
}
