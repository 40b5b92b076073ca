package agent

import "slices"

// Category is the kind of a fault. An eval set names categories in retry.on and in faults.
type Category string

// The categories. Those above the blank line are the agent's own, the others are those of its environment.
const (
	FaultExit              Category = "exit"               // the agent ended with a status other than 0
	FaultNoOutput          Category = "no-output"          // it printed nothing
	FaultInvalidOutput     Category = "invalid-output"     // what it printed is not one JSON document
	FaultMultipleDocuments Category = "multiple-documents" // it printed more than one
	FaultInvalidUTF8       Category = "invalid-utf8"       // it printed bytes that are not UTF-8
	FaultTooDeep           Category = "too-deep"           // its document nests too deep
	FaultOutputLimit       Category = "output-limit"       // it printed more than limits.output
	FaultTimeout           Category = "timeout"            // limits.timeout or limits.segmentTimeout was reached
	FaultIdle              Category = "idle"               // nothing happened for its idleTimeout
	FaultProtocol          Category = "protocol"           // it does not keep to its protocol
	FaultAgentError        Category = "agent-error"        // it answered with an error
	FaultInterrupt         Category = "invalid-interrupt"  // its __interrupt__ has no known shape
	FaultSuspensions       Category = "suspensions"        // limits.suspensions was reached
	FaultUnresumable       Category = "unresumable"        // it suspended and cannot be resumed

	FaultStart          Category = "start"           // the command could not be started
	FaultHandshake      Category = "handshake"       // the agent did not answer before its first prompt
	FaultSetup          Category = "setup"           // the environment could not be set up
	FaultModel          Category = "model"           // its model failed
	FaultMCP            Category = "mcp"             // an MCP server cannot be reached, or the agent does not take its transport
	FaultVerifier       Category = "verifier"        // the task's verifier could not be run, or left no reward
	FaultInterrupted    Category = "interrupted"     // evalrun was ended in the middle of the segment, and it cannot be repeated
	FaultStartUnknown   Category = "start-unknown"   // a job may or may not have been started before a crash
	FaultJob            Category = "job"             // the job that it waited for faulted or was cancelled
	FaultJobLost        Category = "job-lost"        // a local job is gone without a result
	FaultSuspendTimeout Category = "suspend-timeout" // limits.suspendTimeout was reached
	FaultNotRunnable    Category = "not-runnable"    // the evaluation cannot be run here
	FaultWorkspace      Category = "workspace"       // the workspace of an earlier segment is missing
	FaultInternal       Category = "internal"        // evalrun itself failed with this rollout
)

// Owner says who is answerable for a fault.
type Owner string

// The owners.
const (
	// OwnerAgent makes a fault a failure of the agent: it scores 0.
	OwnerAgent Owner = "agent"
	// OwnerEnvironment makes a fault missing data: it has no score.
	OwnerEnvironment Owner = "environment"
)

// agentsOwn and environments are the categories by owner. A job's fault belongs to the environment, because most jobs are not the agent's
// work; an eval set whose agents start jobs of their own making says otherwise.
var (
	agentsOwn = []Category{
		FaultExit, FaultNoOutput, FaultInvalidOutput, FaultMultipleDocuments, FaultInvalidUTF8, FaultTooDeep, FaultOutputLimit,
		FaultTimeout, FaultIdle, FaultProtocol, FaultAgentError, FaultInterrupt, FaultSuspensions, FaultUnresumable,
	}
	environments = []Category{
		FaultStart, FaultHandshake, FaultSetup, FaultModel, FaultMCP, FaultVerifier, FaultInterrupted, FaultStartUnknown, FaultJob, FaultJobLost,
		FaultSuspendTimeout, FaultNotRunnable, FaultWorkspace, FaultInternal,
	}
)

// Categories are all of them.
var Categories = slices.Concat(agentsOwn, environments)

// Owner is who is answerable for a fault of this category where the eval set does not say otherwise. What is unknown, as in a document of a
// later version, is the environment's.
func (c Category) Owner() Owner {
	if slices.Contains(agentsOwn, c) {
		return OwnerAgent
	}
	return OwnerEnvironment
}
