package wait

import "cmp"

var uipathTypes = map[Type]string{
	TypeQueueItem: "QueueItem", TypeJob: "Job", TypeTask: "Task", TypeTimer: "Timer", TypeInbox: "Inbox", TypeAPI: "Api",
	TypeDeepRag: "DeepRag", TypeBatchRag: "BatchRag", TypeIndexIngestion: "IndexIngestion",
	TypeIxpExtraction: "IxpExtraction", TypeIxpVsEscalation: "IxpVsEscalation",
}

// UiPathType gives UiPath's spelling of a trigger type, such as Job or IxpVsEscalation; None for a
// type that UiPath does not have.
func UiPathType(t Type) string { return cmp.Or(uipathTypes[t], "None") }
