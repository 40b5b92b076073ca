package modelagent

// What trips writers of loops over the four APIs, and the tests that say what we do. Those of requests
// are in internal/test/sdks, against the official clients.
//
//	every call is answered in the next request,   TestLoopsOfMessages, …Chat, …Responses, …Gemini;
//	in one message, results first                 TestCallsThatAreWrong/several_calls_in_one_answer
//	reasoning goes back unchanged                 TestReasoningGoesBackUnchanged, and the four loops
//	a call that the limit of tokens has cut       TestCallsThatAreWrong/a_call_that_is_cut_by_the_token_limit
//	refusals, filters, safety, full contexts      TestAnswersThatAreNoOutput
//	pause_turn goes on                            TestReasoningGoesBackUnchanged/messages
//	arguments that are not JSON                   TestCallsThatAreWrong/arguments_that_are_not_JSON
//	names of tools                                TestNamesOfTools
//	schemas, strict mode                          TestToolsOfServers, TestLoopsOfResponses (strict: false)
//	marks for Anthropic's cache                   TestTheLastMessagesAreMarkedForTheCache
//	a prefix that does not change                 TestCommandsRunInTheSandbox, TestAStoppedConversationGoesOn,
//	                                              TestAModelWithServersKilledAtEachStep (internal/test/crash)
//	usage with and without cached tokens          TestUsageOfAllAPIs (internal/model)
//	which answers are worth another try           TestAnswersThatAreNoOutput, TestWaitsAsLongAsTheProviderAsks,
//	                                              internal/retry
//	batches                                       TestOpenAIBatches, TestAnthropicBatches,
//	                                              TestModelsInBatchesKilled (internal/test/crash)
