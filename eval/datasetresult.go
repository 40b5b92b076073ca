package eval

// Metrics are the metrics of one class, or their average over classes.
type Metrics struct {
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	FScore    float64 `json:"fScore"`
}

// Metric returns the metric with a name: precision, recall, or the F-score for any other name.
func (a Metrics) Metric(name string) float64 {
	switch name {
	case "precision":
		return a.Precision
	case "recall":
		return a.Recall
	}
	return a.FScore
}

// ClassMetrics are the counts and metrics of one class of a DatasetResult.
type ClassMetrics struct {
	TP      int `json:"tp"`
	TN      int `json:"tn"`
	FP      int `json:"fp"`
	FN      int `json:"fn"`
	Support int `json:"support"`
	Metrics
}

// DatasetResult is a set-level result of a classification.
type DatasetResult struct {
	// Score is the metric; for a confusion matrix it is the share of right predictions.
	Score   float64        `json:"score"`
	Details DatasetDetails `json:"details"`
}

// DatasetDetails are the numbers behind a DatasetResult, spelled as UiPath spells them.
type DatasetDetails struct {
	Metric    string   `json:"metric"`
	Averaging string   `json:"averaging,omitempty"`
	FValue    *float64 `json:"fValue,omitempty"`
	Classes   []string `json:"classes"`
	// ConfusionMatrix is indexed by the predicted, then the expected class.
	ConfusionMatrix [][]int                 `json:"confusionMatrix"`
	PerClass        map[string]ClassMetrics `json:"perClass,omitempty"`
	Macro           *Metrics                `json:"macro,omitempty"`
	Micro           *Metrics                `json:"micro,omitempty"`
	NTotal          int                     `json:"nTotal"`
	NScored         int                     `json:"nScored"`
	NSkipped        int                     `json:"nSkipped"`
}
