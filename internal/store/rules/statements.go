package rules

// Statements are the statements outside of transactions that run again and again. Tests of a
// database see to it that none of them looks at every row of a table that grows.
func Statements() []string {
	return append([]string{
		backlogQuery, nextDueQuery, activityQuery, selectRun + " WHERE r.run_id = ?", selectSegments, selectResults,
		selectOpenRuns, selectTrigger + "WHERE true AND t.state IN ('intended', 'starting', 'waiting') ORDER BY t.id",
		selectTrigger + "WHERE t.run_id = ? AND t.state IN ('intended', 'starting', 'waiting') ORDER BY t.id",
		selectTrigger + "WHERE t.trigger_id >= ? AND t.trigger_id < ? LIMIT 2", selectJob + " WHERE j.run_id = ?",
		selectJobRollouts + "run_id = ?", nextDueJob, selectTrigger + whereAsked, selectNextNotification,
		selectUndelivered, selectRescorings, selectDue, selectRescorables, selectTheirSegments, selectTheirResults,
		viewAsked, viewRollouts + ofRollout, viewSegments + ofRollout + orderSegments,
		viewTriggers + ofRollout + orderTriggers, viewResults + ofRollout + orderResults,
		selectWaitingRequests, selectMergeable, selectHeld, countWaiting + fromOpen, countWaiting + fromOpenOfRun,
		selectLimits, selectQueues, selectAllLanes, selectLanesOfRun, selectWaiting + fromOpen + " GROUP BY type", selectWaiting + fromOpenOfRun + " GROUP BY type",
	}, ViewStatements()...)
}

// ViewStatements are those of Statements that read a whole run. They sort nothing.
func ViewStatements() []string {
	return []string{
		viewRollouts + ofRun, viewSegments + ofRun + orderSegments, viewTriggers + ofRun + orderTriggers,
		viewResults + ofRun + orderResults,
	}
}
