import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;

/**
 * ACLs, client quotas, SCRAM credentials and delegation tokens.
 *
 * <p>It checks that they can be created, listed and deleted, NOT that the broker enforces them. ACLs
 * need a broker with an authorizer that allows everything without ACLs.
 */
final class SecurityChecks {
    private static final int ATTEMPTS_MAX = 20;
    private static final long ATTEMPT_WAIT_MILLIS = 50;

    private final Checks checks;
    private final RunContext run;
    private final Admin admin;

    SecurityChecks(Checks checks, RunContext run, Admin admin) {
        this.checks = checks;
        this.run = run;
        this.admin = admin;
    }

    void changeAccess() {
        checkAcls();
        checkQuotas();
        checkScramCredentials();
        checks.checkError("createDelegationToken (plaintext)", ApiException.class,
            () -> admin.createDelegationToken().delegationToken().get());
        checks.checkError("describeDelegationToken (plaintext)", ApiException.class,
            () -> admin.describeDelegationToken().delegationTokens().get());
    }

    private void checkAcls() {
        AclBinding binding = new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, run.topic, PatternType.LITERAL),
            new AccessControlEntry("User:bob", "*", AclOperation.READ, AclPermissionType.ALLOW));
        checks.check("createAcls", () -> admin.createAcls(List.of(binding)).all().get());
        checks.check("describeAcls", () ->
            awaitOne(() -> admin.describeAcls(binding.toFilter()).values().get().size()));
        checks.checkResult("deleteAcls", () -> admin.deleteAcls(List.of(binding.toFilter())).all().get().size());
    }

    private void checkQuotas() {
        String client = "c" + run.id;
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, client));
        ClientQuotaAlteration.Op limit = new ClientQuotaAlteration.Op("producer_byte_rate", 1e6);
        checks.check("alterClientQuotas", () ->
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(limit)))).all().get());
        ClientQuotaFilter filter = ClientQuotaFilter.contains(
            List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, client)));
        checks.check("describeClientQuotas", () ->
            awaitOne(() -> admin.describeClientQuotas(filter).entities().get().size()));
    }

    private void checkScramCredentials() {
        String user = "u" + run.id;
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096);
        checks.check("alterUserScramCredentials", () -> admin.alterUserScramCredentials(
            List.of(new UserScramCredentialUpsertion(user, info, "pw"))).all().get());
        checks.check("describeUserScramCredentials", () -> awaitOne(() -> {
            try {
                return admin.describeUserScramCredentials(List.of(user)).all().get().size();
            } catch (ExecutionException error) {
                // The change has not reached the broker that answers.
                return 0;
            }
        }));
    }

    /** A change is applied after its response: ask again until one entry is listed. */
    private static void awaitOne(Checks.Body count) throws Exception {
        for (int attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
            if (count.run().equals(1)) {
                return;
            }
            Thread.sleep(ATTEMPT_WAIT_MILLIS);
        }
        Checks.assertEqual(1, count.run());
    }
}
