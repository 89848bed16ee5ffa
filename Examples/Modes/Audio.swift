import Glibc
import Nightbell

/// Plays, by a program such as `pw-cat -p FILE`. It stays awake for as long as a stream of that program runs,
/// however long it is in the background, and falls asleep five seconds after the end.
func play(_ command: [String]) throws -> Client {
    guard let program = command.first else { explain() }
    let client = try Client(configuration("audio", [.audio]), handlers: handlers())
    var words = command.map { strdup($0) } + [nil]
    var player = pid_t()
    guard posix_spawnp(&player, program, nil, nil, &words, environ) == 0 else {
        fail("\(program) cannot be started", EX_UNAVAILABLE)
    }
    report("plays, by process \(player)")
    // Until the stream is there, this is work like any other.
    let beginning = try client.beginBackgroundTask("begins to play")
    try enterBackground(client)
    sleep(2)
    try client.end(beginning)
    return client
}
