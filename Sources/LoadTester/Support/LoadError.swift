package import LinuxSystem
import Nightbell

/// The reason why a run could not be made or was given up.
package enum LoadError: Error, CustomStringConvertible {
    case system(SystemError)
    case supervisor(String)
    case timedOut(String)
    case childEnded(String, status: CInt)
    /// A sleeper that was to be measured has ended.
    case sleeperDied(String)
    /// A process would need more descriptors than it may have.
    case tooFewDescriptors(need: Int, limit: Int, process: String)
    case interrupted
    case missing(String)

    package var description: String {
        switch self {
        case .system(let error): "\(error)"
        case .supervisor(let text): text
        case .timedOut(let what): "gave up waiting for \(what)"
        case .childEnded(let name, let status): "\(name) ended by itself with status \(status)"
        case .sleeperDied(let name): "\(name) has died"
        case .tooFewDescriptors(let need, let limit, let process):
            "\(process) would need \(need) descriptors, but the hard limit is \(limit) (ulimit -Hn)"
        case .interrupted: "interrupted"
        case .missing(let what): what
        }
    }

    init(_ call: String, code: CInt) {
        self = .system(SystemError(code: code, call: call))
    }

    /// The error of the call that has just failed.
    init(failed call: String) {
        self = .system(SystemError(call))
    }
}
