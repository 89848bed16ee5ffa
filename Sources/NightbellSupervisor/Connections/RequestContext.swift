import LinuxSystem
import NightbellWire

/// The parts of a request that the core does not need: they travel beside its event, for the actions that
/// answer it.
struct RequestContext: ~Copyable {
    /// With a Hello.
    var newcomer: Newcomer?
    /// With a declaration.
    var declaration: Declaration?
    /// With a HandOver.
    var handOver = HandOverDetails()
    /// With a SaveState.
    var state: [UInt8] = []
}

/// A connection that has said Hello, while the core decides.
struct Newcomer: ~Copyable {
    let process: ProcessHandle
    /// When the process started, if it is an unmodified program, and not the one that has connected.
    var programStart: UInt64?
    /// Whether it has something else suspend that program.
    var suspendsItself = false
    let identifier: String
    /// The identifier that it names itself.
    let saidIdentifier: String
    let launch: WireLaunchSpecification?
    let recipe: LaunchRecipe?
    let wantsWakeWord: Bool
    let takesSocketsBack: Bool
    /// The launched process that has started this one.
    var wrapper: LaunchWrapper?
    /// Another worker may have welcomed it already.
    var isWelcome = false
}
