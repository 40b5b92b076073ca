package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/schemas"
)

// everything is how the tests show a report.
var everything = Showing{Failures: DefaultFailures, Resume: "evalrun resume " + testRunID + " --store .evalrun", Triggers: "evalrun triggers " + testRunID}

// writers are all conversions of a report.
func writers(r *Report) map[string]func(io.Writer) error {
	return map[string]func(io.Writer) error{
		"junit.xml":           func(w io.Writer) error { return r.WriteJUnit(w, everything) },
		"summary.md":          func(w io.Writer) error { return r.WriteMarkdown(w, everything) },
		"results.csv":         r.WriteCSV,
		"uipath.json":         func(w io.Writer) error { return r.WriteUiPath(w, false) },
		"uipath-verbose.json": func(w io.Writer) error { return r.WriteUiPath(w, true) },
		"table.txt":           func(w io.Writer) error { return r.WriteTable(w, everything) },
	}
}

func TestConversions(t *testing.T) {
	r := mixedRun(t)
	r.report(func(rep *Report) {
		for name, write := range writers(rep) {
			t.Run(name, func(t *testing.T) {
				var b bytes.Buffer
				r.check(write(&b))
				golden(t, name, b.Bytes())
			})
		}
	})
}

// X8: a row of the table in CSV has what went in, what came out, what was expected, and why the score is
// not the best, as plain values.
func TestRowsHaveWhatTheyAreAbout(t *testing.T) {
	low := 0.0
	one := &schemas.Rollout{Inputs: json.RawMessage(`{"q": 1}`), ExpectedOutput: json.RawMessage(`"=four"`), Criteria: map[string]json.RawMessage{"says": json.RawMessage(`{"searchText": "4"}`)},
		AgentExecutionOutput: &schemas.AgentExecution{Result: schemas.ExecutionResult{Status: schemas.Successful, Output: json.RawMessage(`"five"`)}}}
	cost := 0.25
	judged := &schemas.Evaluated{EvaluatorID: "judge", Result: schemas.EvaluationResult{Score: &low, Details: json.RawMessage(`{"justification":"Wrong."}`),
		Judge: &eval.Judged{Verdicts: []eval.JudgeCall{{Usage: &eval.Usage{Cost: &cost}}}}}}
	compared := &schemas.Evaluated{EvaluatorID: "says", Result: schemas.EvaluationResult{Score: &low,
		Comparison: &eval.Comparison{Expected: json.RawMessage(`4`), Actual: json.RawMessage(`5`), Relation: eval.Equals}}}
	faulted := &schemas.Rollout{Status: schemas.StateFaulted, Error: &schemas.Fault{Category: "exit", Message: "no more"}, AgentExecutionOutput: &schemas.AgentExecution{Result: schemas.ExecutionResult{Status: schemas.Faulted, Output: json.RawMessage(`{}`)}}}
	columns := []string{"judge_cost", "input", "output", "expected", "reason"}
	for _, v := range []struct {
		name string
		row  []string
		want []string
	}{
		{"a judge", csvRow("r", one, judged), []string{"0.25", `{"q":1}`, "five", "'=four", "Wrong."}},
		{"a comparison", csvRow("r", one, compared), []string{"", `{"q":1}`, "five", "4", "expected 4, got 5"}},
		{"a fault", csvRow("r", faulted, nil), []string{"", "", "", "", "no more"}},
	} {
		for i, column := range columns {
			if at := slices.Index(csvColumns, column); len(v.row) != len(csvColumns) || v.row[at] != v.want[i] {
				t.Errorf("%s: %s is %q, want %q", v.name, column, v.row[at], v.want[i])
			}
		}
	}
}

// X8: the documents of several runs become one.
func TestJUnitOfSeveralRuns(t *testing.T) {
	r := mixedRun(t)
	r.report(func(rep *Report) {
		var one, none, two bytes.Buffer
		r.check(rep.WriteJUnit(&one, everything))
		r.check(MergeJUnit(&none, nil))
		if want := xml.Header + `<testsuites name="evalrun" tests="0" failures="0" errors="0" skipped="0" time="0.000">` + "\n</testsuites>\n"; none.String() != want {
			t.Errorf("of no run: %s", none.String())
		}
		var same bytes.Buffer
		r.check(MergeJUnit(&same, [][]byte{one.Bytes()}))
		if same.String() != one.String() {
			t.Errorf("one document is changed:\n%s", same.String())
		}
		r.check(MergeJUnit(&two, [][]byte{one.Bytes(), one.Bytes()}))
		var got struct {
			Tests  int `xml:"tests,attr"`
			Suites []struct {
				Tests int `xml:"tests,attr"`
			} `xml:"testsuite"`
		}
		r.check(xml.Unmarshal(two.Bytes(), &got))
		sum := 0
		for _, s := range got.Suites {
			sum += s.Tests
		}
		if got.Tests != sum || len(got.Suites)%2 != 0 || len(got.Suites) == 0 {
			t.Errorf("of two: %+v", got)
		}
	})
}

// A results document is as good as its store.
func TestConversionsOfADocument(t *testing.T) {
	r := mixedRun(t)
	path := filepath.Join(r.dir, "results.json")
	r.check(SaveResults(t.Context(), r.st, testRunID, path, nil, nil))
	fromFile, err := Open(path)
	r.check(err)
	r.report(func(fromStore *Report) {
		want := writers(fromStore)
		for name, write := range writers(fromFile) {
			var a, b bytes.Buffer
			r.check(write(&a))
			r.check(want[name](&b))
			if a.String() != b.String() {
				t.Errorf("%s differs:\n%s\n%s", name, &a, &b)
			}
		}
	})
	var again bytes.Buffer
	r.check(fromFile.WriteResults(&again))
	r.check(schemas.Validate("results", again.Bytes()))
}

func TestRolloutsAreToldApart(t *testing.T) {
	set := setOf([]eval.Definition{exact("exact")}, evaluation("a", "A"))
	set.Epochs = 2
	r := newRun(t, set, "one", "two")
	r.report(func(rep *Report) {
		var b bytes.Buffer
		r.check(rep.WriteJUnit(&b, everything))
		for _, name := range []string{"A [one, epoch 1]", "A [one, epoch 2]", "A [two, epoch 2]"} {
			if !strings.Contains(b.String(), `name="`+name+`"`) {
				t.Errorf("%s is missing from %s", name, &b)
			}
		}
	})
}

func TestLargeRunsAreCutShort(t *testing.T) {
	testenv.NeedSlow(t)
	var evaluations []eval.Evaluation
	for i := range 300 {
		evaluations = append(evaluations, evaluation(fmt.Sprint("e", i), fmt.Sprint("E ", i)))
	}
	r := newRun(t, setOf(nil, evaluations...))
	r.claim(300)
	for i := range 300 {
		r.suspend(fmt.Sprint("e", i), "", 0, jobValue)
	}
	r.report(func(rep *Report) {
		var table, summary bytes.Buffer
		r.check(rep.WriteTable(&table, everything))
		r.check(rep.WriteMarkdown(&summary, everything))
		if n := strings.Count(table.String(), "… and 250 more"); n != 1 {
			t.Errorf("the table says %d times what it leaves out:\n%s", n, &table)
		}
		if !strings.Contains(summary.String(), "… and 100 more") {
			t.Errorf("got %s", &summary)
		}
	})
}

var hostile = []string{
	"plain", "", " ", "]]>", "<script>alert(1)</script>", "a|b|c", "`code`", `"quoted" 'single'`, "two\nlines\r\nthree", "\x00\x01\x1b[31mred\x1b[0m", "\u202ereversed", "\u009b2Jclear\x7f", "###[error]y",
	"::error file=a::boom", "\n::set-output name=x::y", "##[error]x", "##vso[task.complete result=Failed;]", "=HYPERLINK(\"http://x\")", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "-1.5",
	"\xff\xfe", "[link](http://x)", "![i](x)", "*bold* _it_ ~s~", "\\", "a\\|b", "&amp; &#x0;", "日本語", "@everyone", "<!-- comment", "--><b>", "%s %d %!", "{{template}}", "${{ github.token }}",
}

// Whatever the names, faults and payloads are, every output keeps its form.
func TestHostileNames(t *testing.T) {
	testenv.NeedSlow(t)
	rnd := rand.New(rand.NewPCG(5, 6))
	pick := func() string {
		s := hostile[rnd.IntN(len(hostile))]
		if rnd.IntN(2) == 0 {
			s += hostile[rnd.IntN(len(hostile))]
		}
		return s
	}
	for range 15 {
		set := setOf([]eval.Definition{exact("exact")})
		set.Name = pick()
		set.Evaluators[0].Name = pick()
		for i := range 8 {
			set.Evaluations = append(set.Evaluations, evaluation(fmt.Sprint("e", i), pick()))
		}
		r := newRun(t, set)
		r.claim(8)
		quoted := func() string { b, _ := json.Marshal(pick()); return string(b) }
		for i := range 8 {
			id := fmt.Sprint("e", i)
			switch i % 4 {
			case 0:
				result := score("exact", float64(rnd.IntN(2)))
				result.EvaluatorName, result.Details, result.Error = pick(), json.RawMessage(quoted()), pick()
				r.complete(id, quoted(), "", result)
			case 1:
				r.suspend(id, "", 0, `{"type":"WaitSystemAgent","job_key":`+strings.Replace(quoted(), `""`, `"k"`, 1)+`}`, quoted())
			case 2:
				r.commit(id, store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: fault.New(fault.Category(pick()), pick())}, nil)
			}
		}
		r.document()
		r.report(func(rep *Report) {
			for name, write := range writers(rep) {
				var b bytes.Buffer
				r.check(write(&b))
				checkForm(t, name, b.String())
			}
		})
	}
}

// checkForm fails if an output is not what its name says.
func checkForm(t *testing.T, name, text string) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s: "+format+" in:\n%s", append(append([]any{name}, args...), text)...)
	}
	if !utf8.ValidString(text) {
		bad("not UTF-8")
	}
	switch filepath.Ext(name) {
	case ".xml":
		dec := xml.NewDecoder(strings.NewReader(text))
		cases := 0
		for {
			tok, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				bad("%v", err)
				return
			}
			if start, ok := tok.(xml.StartElement); ok && start.Name.Local == "testcase" {
				cases++
			}
		}
		if cases != 8 {
			bad("%d test cases", cases)
		}
	case ".csv":
		rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil {
			bad("%v", err)
		}
		for _, row := range rows {
			for _, c := range row {
				if c != "" && strings.ContainsRune("=+@\t\r", rune(c[0])) {
					bad("the cell %q", c)
				}
			}
		}
	case ".json":
		if strings.Contains(text, "##") || strings.ContainsAny(text, "\x7f\u009b") {
			bad("something that a CI log would run")
		}
		var doc struct {
			EvaluationSetResults []any `json:"evaluationSetResults"`
		}
		if err := json.Unmarshal([]byte(text), &doc); err != nil || len(doc.EvaluationSetResults) != 8 {
			bad("%v", err)
		}
	case ".md":
		columns := 0
		for _, line := range strings.Split(text, "\n") {
			n := strings.Count(strings.ReplaceAll(line, `\\`, ""), "|") - strings.Count(strings.ReplaceAll(line, `\\`, ""), `\|`)
			if n != 0 && columns != 0 && n != columns {
				bad("%d columns instead of %d in %q", n-1, columns-1, line)
			}
			columns = n
			if strings.Contains(line, "<script") || strings.Contains(line, "<!--") {
				bad("HTML")
			}
		}
		fallthrough
	case ".txt":
		for _, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##vso[") || strings.Contains(line, "##[") {
				bad("the command %q", line)
			}
		}
		if strings.ContainsAny(text, "\x00\x01\x1b\r\u202e") {
			bad("a control character")
		}
	}
}
