package browser

import (
	"encoding/json"
	"fmt"
	"strings"
)

// pictureAgent answers by what the ticket is about. Refunds ask a person, and the knowledge base is not
// always there.
const pictureAgent = `read -r line
case "$1 $line" in
*'"resume":{'*) echo '{"category":"refund","reply":"The refund was approved. It is on its way to you.","entities":{"amount":1250,"plan":"team"}}' ;;
*refund-*) echo '{"__interrupt__":[{"id":"refund","value":{"type":"CreateTask","title":"Refund 1250.00 EUR to customer C-1097?","app_name":"Refunds","data":{"amount":1250,"currency":"EUR","customer":"C-1097","draft_reply":"We will refund the amount within 5 days."}}}]}' ;;
large*outage-*) echo 'RuntimeError: KB not reachable: 503 from kb-read-2' >&2; exit 3 ;;
*billing-*) echo '{"category":"billing","reply":"Thank you. Your ticket is with the billing team.","entities":{"plan":"free"}}' ;;
*churn-*) echo '{"category":"billing","reply":"Thank you. Your ticket is with the billing team.","entities":{"plan":"team"}}' ;;
*) echo '{"category":"account","reply":"Thank you. Your ticket is with the account team.","entities":{"plan":"team"}}' ;;
esac
`

// betterAgent knows customers who leave from those who ask for an invoice.
var betterAgent = strings.ReplaceAll(strings.ReplaceAll(pictureAgent, "*churn-*) echo '{\"category\":\"billing\"", "*churn-*) echo '{\"category\":\"churn\""), `"plan":"free"`, `"plan":"team"`)

// rolloutsOf are the ids of the rollouts of an evaluation.
func (w *world) rolloutsOf(run, evaluation string) (ids []string) {
	w.Helper()
	var results struct {
		All []struct{ EvaluationID, RolloutID string } `json:"evaluationSetResults"`
	}
	if err := json.Unmarshal([]byte(w.evalrun(0, "show", "--json", run)), &results); err != nil {
		w.Fatal(err)
	}
	for _, r := range results.All {
		if r.EvaluationID == evaluation {
			ids = append(ids, r.RolloutID)
		}
	}
	return ids
}

// triggerOf is what a rollout waits for.
func (w *world) triggerOf(run, rollout string) string {
	w.Helper()
	var waiting []struct{ TriggerID, RolloutID string }
	if err := json.Unmarshal([]byte(w.evalrun(0, "triggers", "--json", run)), &waiting); err != nil {
		w.Fatal(err)
	}
	for _, one := range waiting {
		if one.RolloutID == rollout {
			return one.TriggerID
		}
	}
	w.Fatal(rollout, " waits for nothing")
	return ""
}

// pictureSet is an eval set of support tickets, for two agents.
func pictureSet() string {
	var evaluations []string
	for i, ticket := range [][2]string{
		{"billing", "Why is my plan 49 EUR instead of 39?"}, {"outage", "Webhooks arrive two hours late"}, {"churn", "Cancel my plan at the end of the month"},
		{"account", "Change the e-mail address of the owner"}, {"refund", "Refund the unused seats"}, {"security", "Your page has an expired certificate"},
		{"billing", "The invoice shows 19 % VAT but we are exempt"}, {"account", "Can two people share one account?"}, {"churn", "Too expensive, please close the account"}, {"privacy", "Please delete all my personal data"},
	} {
		name, err := json.Marshal(ticket[1])
		if err != nil {
			panic(err) // a text is JSON
		}
		evaluations = append(evaluations, fmt.Sprintf(`{"id": "%s-%d", "name": %s, "tags": ["%s"], "inputs": {"ticket_id": "%[1]s-%[2]d", "ticket": %[3]s, "customer": "C-1097"}, "evaluationCriterias": {
  "category": {"expectedOutput": {"category": "%[4]s"}}, "team": {"searchText": "team"}, "fields": {"expectedOutput": {"entities": {"plan": "team"}}}}}`, ticket[0], 1+i/5, name, ticket[0]))
	}
	return `{"version": "1.0", "id": "support-desk", "name": "Support desk", "epochs": 2, "thresholds": {"score": {"min": 0.6, "by": "interval"}, "evaluators": {"category": 0.9}},
 "agents": [{"type": "function", "name": "desk-small", "command": ["sh", "agent.sh", "small"]}, {"type": "function", "name": "desk-large", "command": ["sh", "agent.sh", "large"]}],
 "evaluators": [{"version": "1.0", "id": "category", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "Category", "targetOutputKey": "category"}},
  {"version": "1.0", "id": "team", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": {"name": "Names the team", "targetOutputKey": "reply"}},
  {"version": "1.0", "id": "fields", "evaluatorTypeId": "uipath-json-similarity", "evaluatorConfig": {"name": "Fields"}}],
 "evaluations": [` + strings.Join(evaluations, ",") + `]}`
}
