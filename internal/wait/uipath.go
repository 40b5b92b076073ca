package wait

import "strings"

// uipathTypes and uipathNames are UiPath's enumerations.
var (
	uipathTypes = []string{"None", "QueueItem", "Job", "Task", "Timer", "Inbox", "Api",
		"DeepRag", "BatchRag", "IndexIngestion", "IxpExtraction", "IxpVsEscalation"}
	uipathNames = []string{"Unknown", "QueueItem", "Job", "Task", "Escalation", "Timer", "Inbox", "Api", "DeepRag",
		"BatchRag", "IndexIngestion", "Extraction", "IxpVsEscalation", "JobRaw", "IndexIngestionRaw", "DeepRagRaw"}
)

// UiPathType gives UiPath's spelling of a trigger type, such as Job or IxpVsEscalation; None for a
// type that UiPath does not have.
func UiPathType(t Type) string { return toUiPath(string(t), uipathTypes) }

// UiPathName gives UiPath's spelling of a trigger name, such as JobRaw or Escalation; Unknown for
// one that UiPath does not have.
func UiPathName(name string) string { return toUiPath(name, uipathNames) }

// FromUiPathType is the inverse of [UiPathType].
func FromUiPathType(s string) (Type, bool) {
	name, ok := fromUiPath(s, uipathTypes)
	return Type(name), ok
}

// FromUiPathName is the inverse of [UiPathName].
func FromUiPathName(s string) (string, bool) { return fromUiPath(s, uipathNames) }

// toUiPath looks a name up; the first of the enumeration stands for every name that is not in it.
func toUiPath(name string, known []string) string {
	for _, k := range known {
		if name == upperSnake(k) {
			return k
		}
	}
	return known[0]
}

func fromUiPath(s string, known []string) (string, bool) {
	for _, k := range known[1:] {
		if s == k {
			return upperSnake(k), true
		}
	}
	return "", false
}

// upperSnake turns JobRaw into JOB_RAW.
func upperSnake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}
