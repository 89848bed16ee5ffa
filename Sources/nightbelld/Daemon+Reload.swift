import DaemonConfiguration
import NightbellSupervisor

/// Reads the configuration and the manifests again.
extension Daemon {
    /// Applies the new values, except for keys that count only from a start: those keep their values.
    func reload() -> SupervisorConfiguration.Reloaded {
        var new: LoadedConfiguration
        do {
            new = try read()
        } catch {
            return SupervisorConfiguration.Reloaded(nil, problems: ["\(error)"])
        }
        let written = new.settings
        var changed: [String] = []
        var kept: [String] = []
        for key in Keys.all {
            let (before, after) = (key.value(in: loaded.settings), key.value(in: written))
            guard before != after else { continue }
            if key.needsStart {
                key.copy(from: loaded.settings, to: &new.settings)
                kept.append("\(key.name) is \(shown(after)), and \(shown(before)) until then")
            } else {
                changed.append("\(key.name) is \(shown(after)) now, it was \(shown(before))")
            }
        }
        loaded = new
        threshold.level = new.settings.logLevel
        let manifests = readManifests()
        declarations = manifests.declarations
        var result = SupervisorConfiguration.Reloaded(
            supervisorConfiguration, problems: new.warnings + gatewayProblems + manifests.problems)
        result.changed = changed
        result.kept = kept
        return result
    }

    private func shown(_ value: String) -> String { value.isEmpty ? "nothing" : value }
}
