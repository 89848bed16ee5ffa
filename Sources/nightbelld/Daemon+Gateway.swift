import DaemonConfiguration
import Glibc
import Launching
import Manifests
import NightbellSupervisor

/// The rights of `nightbell-gateway`.
extension Daemon {
    var gatewayRights: GatewayRights? {
        let settings = loaded.settings
        let name = settings.gatewayUser
        // A number needs no account: a container's user has none outside.
        guard !name.isEmpty,
            let user = SystemAccounts.number(name) ?? SystemAccounts().user(name)?.identity.user
        else { return nil }
        return GatewayRights(user: user, mayWake: settings.gatewayRights == .wake)
    }

    /// Reasons why the rights are not as configured.
    var gatewayProblems: [String] {
        let name = loaded.settings.gatewayUser
        guard !name.isEmpty else { return [] }
        guard let rights = gatewayRights else {
            return ["gateway.user: there is no user \(name); nightbell-gateway sees no clients"]
        }
        guard rights.user == 0 || rights.user == geteuid() else { return [] }
        return ["gateway.user: \(name) may administer this supervisor, whatever gateway.rights is"]
    }
}
