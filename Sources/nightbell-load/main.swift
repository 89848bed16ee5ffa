import ArgumentParser
import LoadTester

LoadCommand.holdStandardDescriptors()
// The parts of a run are this program again. They are told apart before anything else is done: a thousand of
// them start at once.
ProcessRole.runIfRequested(CommandLine.arguments)
LoadCommand.main()
