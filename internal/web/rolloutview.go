package web

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// The limits of a rollout's page.
const (
	maxScores = 200
	maxSteps  = 100
	maxTable  = 300
)

// rolloutPage is the page of a rollout.
type rolloutPage struct {
	frame
	*report.Detail
	RunID, RunName string
	Suspensions    int
	// Repeated counts the attempts after the first one of each segment.
	Repeated int
	Siblings []agentCells
	// Previous and Next are links to the failures before and after this one. Place says where it is
	// among them.
	Previous, Next, Place string
	List                  string
	// From is the query of the list that led here.
	From   string
	Fault  *faultText
	Scores []scoreRow
	// Usage says how much the agent has used of models, Scoring how the scores of the evaluators make
	// the score.
	Usage   string
	Scoring []string
	// NotScored says why there are no scores. NoCriterion names the evaluators that were not asked,
	// because the evaluation has no criterion for them.
	NotScored   string
	NoCriterion []string
	Timeline    *drawing
	// Table is the part of all stretches that the query asks for.
	Table     []stretch
	TablePart part
	// SoFar says that the clocks stand still since the rollout came into its state.
	SoFar                   time.Duration
	Input, Expected, Output shown
	// CriteriaBy has the criteria of the evaluators.
	CriteriaBy []criterion
	Waits      []waitCard
	// CSRF is the token of the forms.
	CSRF string
	// Steps are the steps of the trajectory, of the kind StepKind if one was chosen. StepsCut is set
	// if a part was not read.
	Steps     []step
	StepsPart part
	StepKind  string
	// StepFind is the text that all shown steps contain.
	StepFind  string
	StepKinds []choice
	StepsCut  bool
	// Changed lists the files that the agent has reported to have changed.
	Changed []changedFile
	Files   []fileRow
	LogEnd  *logPart
	// Follow is the URL that streams additions to that log, empty if its agent does not run.
	Follow string
}

// faultText says why a rollout has faulted: first the last line that its agent printed.
type faultText struct {
	Category, Owner string
	Reason          string
	// End is the end of the message. Whole is all of it if that is more.
	End, Whole string
}

// waitCard is a wait of the rollout, with the question and the answer.
type waitCard struct {
	report.Wait
	Name, Status    string
	Asked, Answered shown
	By              string
	After           time.Duration
	Commands        []string
	// Form is set if the reader may answer.
	Form *asking
}

// criterion is the criterion of an evaluator.
type criterion struct {
	Name  string
	Value shown
}

// fileRow is a file that a rollout has left.
type fileRow struct {
	report.File
	URL string
}

// logPart is a part of a file.
type logPart struct {
	Name  string
	Spans []logSpan
	// From and To are the bounds of the part in bytes, of Size.
	From, To, Size int64
	URL            string
}

// scoreRow is the result of an evaluator.
type scoreRow struct {
	schemas.Evaluated
	// Status is passed, failed, unscored, or faulted for an evaluator that failed.
	Status   string
	Findings []string
	// Expected and Actual are set if both are short values, Leaves if they are objects or arrays.
	Expected, Actual []word
	Compared         bool
	Leaves           *leaves
	Took             time.Duration
	// Line is the only text about an evaluator that gave its best score.
	Line string
	// Failed is the end of the error of an evaluator that failed.
	Failed string
	Votes  *votes
	// Log has the last lines of a task's verifier, if that says nothing else.
	Log []string
}

// step is something that happened in a rollout: a segment began or ended, somebody said something,
// a tool was called, or an answer arrived.
type step struct {
	At time.Time
	// Number is its place among all steps of the rollout, from 1.
	Number int
	// Kind is one of stepKinds. Who says in a word or two what the step is.
	Kind, Who string
	Status    string
	// Text is what was said. Folded is set if a reader has to open it.
	Text   []textPart
	Folded bool
	// said is the whole text of which Text is the beginning.
	said string
	// Input and Output are those of a tool. Arguments and Result are the same in one line.
	Input, Output     []textPart
	Arguments, Result string
	Edits             []edit
	Images            []picture
	// call is the call as the agent, or the gateway, reported it. result is what the gateway saw of a
	// call that the agent reported.
	call   *record.Call
	result json.RawMessage
	// URL is a link to the rest of it.
	URL string
}

// edit is a change of a file that an agent has reported.
type edit struct {
	Path           string
	Added, Removed int
	// Lines are the lines of a unified diff, of which More are left out.
	Lines []editedLine
	More  int
}

// changedFile is a file that the agent has reported to have changed.
type changedFile struct {
	Path                  string
	Edits, Added, Removed int
	// URL is a link to its first edit.
	URL string
}

// editedLine is a line of a unified diff: Class is ins, del, hunk or empty.
type editedLine struct{ Class, Sign, Text string }
