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
	// Previous and Next lead to the failures before and after this one, Place says where it is among
	// them.
	Previous, Next, Place string
	List                  string
	// From is the query of the list from which one has come.
	From   string
	Fault  *faultText
	Scores []scoreRow
	// Usage says what the agent has used of models, Scoring how the score is made of those of the
	// evaluators.
	Usage   string
	Scoring []string
	// NotScored says why there are no scores. NoCriterion are the evaluators that were not asked,
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
	// CriteriaBy are what the evaluators go by.
	CriteriaBy []criterion
	Waits      []waitCard
	// CSRF is the token of the forms.
	CSRF string
	// Steps are those of the trajectory that are of StepKind, if one was chosen; StepsCut says that
	// not all of it was read.
	Steps     []step
	StepsPart part
	StepKind  string
	// StepFind is what all steps that are shown have in them.
	StepFind  string
	StepKinds []choice
	StepsCut  bool
	// Changed are the files that the agent has reported to have changed.
	Changed []changedFile
	Files   []fileRow
	LogEnd  *logPart
	// Follow is where what is added to that log is streamed, empty if its agent does not run.
	Follow string
}

// faultText is why a rollout has faulted: the last line of what its agent has printed first.
type faultText struct {
	Category, Owner string
	Reason          string
	// End is the end of the message, Whole all of it where that is more.
	End, Whole string
}

// waitCard is something that was waited for, with what was asked and what came.
type waitCard struct {
	report.Wait
	Name, Status    string
	Asked, Answered shown
	By              string
	After           time.Duration
	Commands        []string
	// Form is there if the reader may answer.
	Form *asking
}

// criterion is what an evaluator goes by.
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
	// From and To are the bytes that it has, of Size.
	From, To, Size int64
	URL            string
}

// scoreRow is what an evaluator says.
type scoreRow struct {
	schemas.Evaluated
	// Status is passed, failed, unscored or, of an evaluator that has failed, faulted.
	Status   string
	Findings []string
	// Expected and Actual are there if both are short values, Leaves if they are objects or arrays.
	Expected, Actual []word
	Compared         bool
	Leaves           *leaves
	Took             time.Duration
	// Line is all that is said of an evaluator that has given its best score.
	Line string
	// Failed is the end of what an evaluator that has failed has said.
	Failed string
	Votes  *votes
	// Log are the last lines of a task's verifier, where that says nothing else.
	Log []string
}

// step is something that happened in a rollout: a segment began or ended, somebody said something, a
// tool was called, or an answer arrived.
type step struct {
	At time.Time
	// Number is its place among all steps of the rollout, from 1.
	Number int
	// Kind is one of stepKinds, Who says what it is in a word or two.
	Kind, Who string
	Status    string
	// Text is what was said. Folded says that a reader has to open it.
	Text   []textPart
	Folded bool
	// said is all of a text of which Text has the beginning.
	said string
	// Input and Output are those of a tool, and Arguments and Result the same in a line.
	Input, Output     []textPart
	Arguments, Result string
	Edits             []edit
	Images            []picture
	// call is the call as the agent, or the gateway, has told it, and result what the gateway saw of one
	// that the agent has told.
	call   *record.Call
	result json.RawMessage
	// URL leads to more of it.
	URL string
}

// edit is a change of a file that an agent has reported.
type edit struct {
	Path           string
	Added, Removed int
	// Lines are those of a unified diff, of which More are left out.
	Lines []editedLine
	More  int
}

// changedFile is a file that the agent has reported to have changed.
type changedFile struct {
	Path                  string
	Edits, Added, Removed int
	// URL leads to its first edit.
	URL string
}

// editedLine is a line of a unified diff: Class is ins, del, hunk or empty.
type editedLine struct{ Class, Sign, Text string }
