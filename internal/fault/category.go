package fault

import "slices"

// Category is the kind of a fault. An eval set names categories in retry.on and in faults, and the
// results document gives that of each faulted rollout. Users read of the categories in
// docs/agents.md ("Faults"), docs/acp.md, docs/operations.md ([Workspace]) and docs/rollout.md
// ([Internal]), and of their owners in docs/evalsets.md ("Statistics").
type Category string

// The categories of faults that are the agent's own.
const (
	Exit              Category = "exit"               // the agent ended with a status other than 0
	NoOutput          Category = "no-output"          // it printed nothing
	InvalidOutput     Category = "invalid-output"     // its output is not one JSON document
	MultipleDocuments Category = "multiple-documents" // it printed more than one
	InvalidUTF8       Category = "invalid-utf8"       // it printed bytes that are not UTF-8
	TooDeep           Category = "too-deep"           // its document nests too deep
	OutputLimit       Category = "output-limit"       // it printed more than limits.output
	Timeout           Category = "timeout"            // limits.timeout or limits.segmentTimeout was reached
	Idle              Category = "idle"               // nothing happened for its idleTimeout
	DiskLimit         Category = "disk-limit"         // it wrote more than environment.storage_mb of its task
	Budget            Category = "budget"             // limits.tokens or limits.cost was exceeded
	Protocol          Category = "protocol"           // it does not keep to its protocol
	AgentError        Category = "agent-error"        // it answered with an error
	InvalidInterrupt  Category = "invalid-interrupt"  // its __interrupt__ has no known shape
	Suspensions       Category = "suspensions"        // limits.suspensions was reached
	Unresumable       Category = "unresumable"        // it suspended and cannot be resumed
)

// The categories of faults of the agent's environment. A job's fault is among them because most
// jobs are not the agent's work.
const (
	Start          Category = "start"           // the command could not be started
	Handshake      Category = "handshake"       // the agent did not answer before its first prompt
	Setup          Category = "setup"           // the environment could not be set up
	Image          Category = "image"           // the image of the environment could not be built or pulled
	Model          Category = "model"           // its model failed
	MCP            Category = "mcp"             // an MCP server is unreachable, or the agent does not take its transport
	Verifier       Category = "verifier"        // the task's verifier could not be run, or left no reward
	Interrupted    Category = "interrupted"     // evalrun ended in the middle of the segment, which cannot be repeated
	StartUnknown   Category = "start-unknown"   // a job may or may not have been started before a crash
	Job            Category = "job"             // the job that it waited for faulted or was cancelled
	JobLost        Category = "job-lost"        // a local job is gone without a result
	SuspendTimeout Category = "suspend-timeout" // limits.suspendTimeout was reached
	NotRunnable    Category = "not-runnable"    // the evaluation cannot be run here
	Workspace      Category = "workspace"       // the workspace of an earlier segment is missing
	Internal       Category = "internal"        // evalrun itself failed with this rollout
)

// JudgeExpired says that something that an evaluator waited for did not come before
// limits.scoreTimeout was reached. It is an error of the evaluator and never the fault of a
// rollout, and so it is none of Categories.
const JudgeExpired Category = "judge-expired"

// Owner says who is answerable for a fault.
type Owner string

// The owners.
const (
	// OwnerAgent makes a fault a failure of the agent: it scores 0.
	OwnerAgent Owner = "agent"
	// OwnerEnvironment makes a fault missing data: it has no score.
	OwnerEnvironment Owner = "environment"
)

var (
	agentsOwn = []Category{
		Exit, NoOutput, InvalidOutput, MultipleDocuments, InvalidUTF8, TooDeep, OutputLimit, Timeout, Idle, DiskLimit, Budget,
		Protocol, AgentError, InvalidInterrupt, Suspensions, Unresumable,
	}
	environments = []Category{
		Start, Handshake, Setup, Image, Model, MCP, Verifier, Interrupted, StartUnknown, Job, JobLost,
		SuspendTimeout, NotRunnable, Workspace, Internal,
	}
)

// Categories lists all categories.
var Categories = slices.Concat(agentsOwn, environments)

// Owner returns who is answerable for a fault of this category where the eval set does not say
// otherwise. The environment owns an unknown category, such as one in a document of a later
// version.
func (c Category) Owner() Owner {
	if slices.Contains(agentsOwn, c) {
		return OwnerAgent
	}
	return OwnerEnvironment
}
